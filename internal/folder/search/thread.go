// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"hash/maphash"

	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/threading"
	"github.com/mailstead/mailstead/internal/message"
)

// errReferencesUnknown is returned if the references of a message are not stored.
var errReferencesUnknown = errors.New("what a message answers is not known yet")

// ThreadByOrderedSubject threads messages, with ascending UIDs, by their subjects only (RFC 5256
// §3).
func ThreadByOrderedSubject(ctx context.Context, v *folder.View, uids []uint32) (*threading.Threads, error) {
	messages := make([]threading.Message, 0, len(uids))
	err := eachThreadMessage(ctx, v, uids, folder.FetchEnvelope, func(m threading.Message, _ *folder.MessageRow) error {
		messages = append(messages, m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return threading.ByOrderedSubject(messages), nil
}

// ThreadByReferences threads messages, with ascending UIDs, by their references (RFC 5256 §3). It
// returns a fault.RateLimited for far too many Message-IDs.
func ThreadByReferences(ctx context.Context, v *folder.View, uids []uint32) (*threading.Threads, error) {
	t, err := threadByReferences(ctx, v, uids, true)
	if errors.Is(err, errReferencesUnknown) {
		if err = v.FillReferences(ctx, uids); err != nil {
			return nil, err
		}
		return threadByReferences(ctx, v, uids, false)
	}
	return t, err
}

func threadByReferences(ctx context.Context, v *folder.View, uids []uint32, all bool) (*threading.Threads, error) {
	refs := threading.NewReferencesBuilder()
	err := eachThreadMessage(ctx, v, uids, folder.FetchReferences, func(m threading.Message, r *folder.MessageRow) error {
		if r != nil {
			var known bool
			if m.ID, m.References, known = r.ThreadKeys(); !known && all {
				return errReferencesUnknown
			}
		}
		if !refs.Add(m) {
			return sortLimitError()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return refs.Threads(), nil
}

// eachThreadMessage calls add for each message in order. A message that is gone has no row.
func eachThreadMessage(ctx context.Context, v *folder.View, uids []uint32, want folder.FetchFields, add func(m threading.Message, r *folder.MessageRow) error) error {
	seed := maphash.MakeSeed()
	err := v.Fetch(ctx, uids, want, func(r *folder.MessageRow) error {
		for ; uids[0] != r.UID; uids = uids[1:] {
			if err := add(threading.Message{}, nil); err != nil {
				return err
			}
		}
		uids = uids[1:]
		m := threading.Message{Sent: sentMicros(r)}
		var subject string
		if subject, m.IsReply = message.BaseSubject(message.EnvelopeText(r.Envelope, message.EnvelopeSubject)); subject != "" {
			m.Subject = max(1, maphash.String(seed, message.CollationKey(subject)))
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
