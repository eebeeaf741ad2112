// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"hash/maphash"

	"github.com/mailstead/mailstead/internal/folder/threading"
	"github.com/mailstead/mailstead/internal/message"
)

// errUndescribed says that it is not stored what some message answers.
var errUndescribed = errors.New("what a message answers is not known yet")

// OrderedSubject makes threads of messages, whose UIDs rise, by their subjects
// alone (RFC 5256 §3).
func (v *View) OrderedSubject(ctx context.Context, uids []uint32) (*threading.Threads, error) {
	messages := make([]threading.Message, 0, len(uids))
	err := v.threadable(ctx, uids, WantEnvelope, func(m threading.Message, _ *Row) error {
		messages = append(messages, m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return threading.OrderedSubject(messages), nil
}

// References makes threads of messages, whose UIDs rise, by what they answer
// (RFC 5256 §3). Far too many Message-IDs are a fault.Limited.
func (v *View) References(ctx context.Context, uids []uint32) (*threading.Threads, error) {
	t, err := v.references(ctx, uids, true)
	if errors.Is(err, errUndescribed) {
		if err = v.describeAnswers(ctx, uids); err != nil {
			return nil, err
		}
		return v.references(ctx, uids, false)
	}
	return t, err
}

func (v *View) references(ctx context.Context, uids []uint32, all bool) (*threading.Threads, error) {
	refs := threading.NewReferences()
	err := v.threadable(ctx, uids, WantAnswers, func(m threading.Message, r *Row) error {
		if r != nil {
			var known bool
			if m.References, known = decodeAnswers(r.Answers); !known && all {
				return errUndescribed
			}
			if ids := message.ParseMessageIDs(envelopeID(r.Envelope)); len(ids) > 0 {
				m.ID = messageKey(ids[0])
			}
		}
		if !refs.Add(m) {
			return tooMuchToSort()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return refs.Threads(), nil
}

// threadable calls add for each message in order; one that is gone, so that
// nothing is known of it, has no row.
func (v *View) threadable(ctx context.Context, uids []uint32, want Want, add func(m threading.Message, r *Row) error) error {
	seed := maphash.MakeSeed()
	err := v.Fetch(ctx, uids, want, func(r *Row) error {
		for ; uids[0] != r.UID; uids = uids[1:] {
			if err := add(threading.Message{}, nil); err != nil {
				return err
			}
		}
		uids = uids[1:]
		m := threading.Message{Sent: sentAt(r)}
		var subject string
		if subject, m.Reply = message.BaseSubject(envelopeText(r.Envelope, 1)); subject != "" {
			m.Subject = max(1, maphash.String(seed, message.Collate(subject)))
		}
		if err := add(m, r); err != nil {
			return err
		}
		return ctx.Err()
	})
	for ; err == nil && len(uids) > 0; uids = uids[1:] {
		err = add(threading.Message{}, nil)
	}
	return err
}

// envelopeID returns the Message-ID field.
func envelopeID(envelope []byte) string {
	r := wireReader{envelope}
	r.accept('(')
	for range envelopePlace("message-id") {
		r.skip()
	}
	return string(r.text())
}
