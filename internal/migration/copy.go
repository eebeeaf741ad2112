// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

const (
	// fullWindow is how many messages are asked about at once.
	fullWindow = 500
	// A folder of which nothing is known is searched for so many UIDs at once,
	// at first.
	firstSpan = 100_000
	// maxSuspect is how often the line may break at the same message, and
	// maxUnreadable the same for answers that can't be understood.
	// It is passed over only then: a line that breaks now and then must cost no
	// message.
	maxSuspect, maxUnreadable = 10, 2
	// stuck is after how many tries in a row that brought nothing it is looked
	// for the message that is to blame, if the source does not tell by where it
	// breaks off; and maxPassed is how many are then passed over of which none is
	// between them that could be copied: more, and it is the source itself.
	stuck, maxPassed = maxRetries / 2, 3
)

// copyFolder copies what is left of a folder.
func (j *job) copyFolder(ctx context.Context, src *source, t *task) error {
	if err := j.prepare(ctx, t); err != nil {
		return own(err)
	}
	at, err := src.examine(t.name)
	if err != nil {
		words, no := refused(err)
		if no && t.refused {
			return j.closeFolder(ctx, t, "failed", words)
		}
		t.refused = no
		t.narrower = t.narrower || no // it waits for its second turn
		return err
	}
	if at.UIDValidity != t.validity {
		t.renewed = t.validity != 0
		t.validity, t.last = at.UIDValidity, 0
		clear(t.suspect)
		clear(t.broken)
	}
	if err := j.weigh(ctx, src, t, at.NumMessages); err != nil {
		return err
	}
	f := &copying{job: j, src: src, task: t, from: j.Source.folder(t.name)}
	if f.renumbered, err = j.renumbered(ctx, f.from, t.validity, j.Mailbox); err != nil {
		return ours{err}
	}
	if at.NumMessages > 0 {
		if err := f.all(ctx, uint32(at.UIDNext)); err != nil {
			return err
		}
	}
	if f.full {
		return j.closeFolder(ctx, t, "failed", fullFolder+" The rest was not copied.")
	}
	return j.closeFolder(ctx, t, Done, "")
}

// prepare makes the folder here.
func (j *job) prepare(ctx context.Context, t *task) error {
	_, err := j.o.Folders.Create(ctx, j.Mailbox, t.target)
	if err != nil && !fault.Is(err, fault.Conflict) {
		if fault.Is(err, fault.Limited) {
			return final{"The mailbox has as many folders as it may have. Choose which to copy."}
		}
		return err
	}
	if !t.subscribed {
		return nil
	}
	if err := j.o.Folders.Subscribe(ctx, j.Mailbox, t.target); !fault.Is(err, fault.Limited) {
		return err
	}
	return nil
}

// weigh finds out how many bytes a folder has, if that is not known yet. It is for
// the progress alone: of a source that can't say, what it has told so far will do,
// the second time if the trouble may pass.
func (j *job) weigh(ctx context.Context, src *source, t *task, messages uint32) error {
	if t.bytes >= 0 {
		return nil
	}
	var sum int64
	var wrong error
	if messages > 0 {
		sum, wrong = src.weigh()
		if _, no := refused(wrong); no {
			wrong = nil
		}
	}
	if wrong != nil {
		t.narrower = true
		if !t.unweighed {
			t.unweighed = true
			return wrong
		}
	}
	err := j.o.DB.Write(ctx, j.Mailbox, &db.Job{Guard: func(b *db.Batch) {
		b.Queue(weighed.With(j.ID, j.tenure, sum)).Else(errLost)
		b.Queue(folderWeighed.With(j.ID, t.n, sum))
	}})
	if err != nil {
		return own(err)
	}
	t.bytes = sum
	return wrong // after which the line may be broken
}

// copying is a folder while it is copied over a connection.
type copying struct {
	*job
	*task
	src  *source
	from int64 // the folder's number in migration_copied
	// renumbered says that messages of this folder were copied under another
	// UIDVALIDITY: they are known by their digest.
	renumbered bool
	full       bool // the folder here can take no more
}

// all copies all messages above the last that is done. Of a folder whose UIDs
// are far apart it does not ask for each. next may be wrong: some sources tell too
// low a UIDNEXT, and what is above it would be lost.
func (f *copying) all(ctx context.Context, next uint32) error {
	for span := uint64(firstSpan); ; {
		low, high := f.last+1, uint32(0) // 0 is *
		if uint64(f.last)+span < uint64(next) {
			high = f.last + uint32(span)
		}
		if f.last == 1<<32-1 {
			return nil
		}
		uids, err := f.src.search(low, high)
		if err != nil {
			return err
		}
		for len(uids) > 0 {
			if f.full {
				return nil
			}
			n := min(len(uids), f.window)
			if err := f.copyWindow(ctx, uids[:n]); err != nil {
				return f.judge(err, uids[:n])
			}
			uids = uids[n:]
			f.window = min(2*f.window, fullWindow)
		}
		if high == 0 {
			return nil
		}
		if f.last < high {
			f.last = high
			span = min(span*4, 1<<31)
		}
	}
}

// judge finds out whether single messages are to blame for an error, to pass
// over them the next time.
func (f *copying) judge(err error, uids []uint32) error {
	var strange garbled
	words, no := refused(err)
	switch {
	case !theirs(err), f.asking:
	case errors.As(err, &strange):
		f.accuse(uids, maxUnreadable, "What the source says of it can't be understood.", maxGarbled)
	case no:
		f.accuse(uids, maxUnreadable, words, maxRetries)
	case f.at != 0:
		f.blame([]uint32{f.at}, maxSuspect, "The connection broke off each time that it was read.")
	case f.Retries >= stuck && f.passed < maxPassed:
		f.accuse(uids, maxSuspect, trouble(err), maxRetries)
	}
	f.at, f.asking = 0, false
	return err
}

// theirs reports whether an error is the source's, and may pass.
func theirs(err error) bool {
	var own ours
	var last final
	return !errors.As(err, &own) && !errors.As(err, &last) && !errors.Is(err, errLost) && !errors.Is(err, context.Canceled)
}

// accuse is blame where the source itself may be in trouble, which must cost no
// message: a single one is blamed only where another was given just before. Where
// there is none, all tries but the last are the source's.
func (f *copying) accuse(uids []uint32, often int, why string, tries int) {
	if len(uids) > 1 || f.gives || f.alone && f.Retries >= tries || !f.doubted {
		f.blame(uids, often, why)
	}
	f.doubted = true
}

// other finds out, for a message that is doubted, whether the source gives
// another one, near it.
func (f *copying) other(than uint32) error {
	f.asking = true
	uids, err := f.src.search(than-min(than-1, firstSpan), than+min(1<<32-1-than, firstSpan)) // of a large folder not all
	if err != nil {
		return err
	}
	uids = slices.DeleteFunc(uids, func(uid uint32) bool { return uid == than || f.broken[uid] != "" })
	if f.alone = len(uids) == 0; !f.alone {
		at, known := slices.BinarySearch(uids, f.given)
		if !known {
			at = rand.IntN(len(uids)) //nolint:gosec // that one may be bad as well
		}
		f.given = 0
		err = f.try(uids[at : at+1])
	}
	f.asking = err != nil
	return err
}

// try finds out whether the source gives a message, as it would be asked for it
// to copy it.
func (f *copying) try(uid []uint32) error {
	if err := f.src.order(uid[0]); err != nil {
		return err
	}
	if known, err := f.src.describe(uid, f.renumbered); err != nil || len(known) == 0 {
		return err
	}
	return f.src.texts(uid, func(uint32) {}, func(_ uint32, text imap.LiteralReader) error {
		_, err := io.Copy(io.Discard, text)
		return f.src.did(err)
	}, func(uint32) error { f.gives, f.given = true, uid[0]; return nil })
}

// blame notes that one of some messages can't be had: fewer of them are asked for
// the next time. A single one is passed over once it was so often enough.
func (t *task) blame(uids []uint32, often int, why string) {
	t.narrower = true
	if len(uids) > 1 {
		t.window = len(uids) / 2
		return
	}
	if t.suspect[uids[0]]++; t.suspect[uids[0]] >= often {
		t.give(uids[0], why)
	}
}

// give passes over a message.
func (t *task) give(uid uint32, why string) {
	t.broken[uid], t.narrower = why, true
	t.passed++
}

// letter is a message of the source.
type letter struct {
	uid    uint32
	place  uint32 // its sequence number
	flags  []string
	dated  bool      // the source tells a date
	date   time.Time // zero if it can't be read
	exact  bool      // the date is written as IMAP has it
	size   int64
	id     string // its identity, as far as it is known
	digest int64
}

// copyWindow copies those of some messages that are not here yet, and notes
// that all of them are done.
func (f *copying) copyWindow(ctx context.Context, uids []uint32) error {
	first, last := uids[0], uids[len(uids)-1]
	here, err := f.copied(ctx, f.from, f.validity, first, last, f.Mailbox)
	if err != nil {
		return ours{err}
	}
	var end tally
	var left []uint32
	var lost []Failure
	for _, uid := range uids {
		why, bad := f.broken[uid]
		by, known := here[uid]
		if known {
			f.given = uid
		}
		switch {
		case known && by != f.ID:
			end.done++
			end.skipped++
		case known: // counted when it was copied
		case bad:
			lost = append(lost, Failure{f.name, uid, why})
		default:
			left = append(left, uid)
		}
	}
	if f.gives, f.alone = false, false; f.doubted && len(left) == 1 {
		if err := f.other(left[0]); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		f.at = left[0]
		if err := f.src.order(f.at); err != nil {
			return err
		}
		f.at = 0
	}
	letters, silent, err := f.describe(left)
	if err != nil {
		return err
	}
	for _, uid := range silent {
		lost = append(lost, Failure{f.name, uid, "The source says nothing of it."})
	}
	end.done += int64(len(left) - len(letters) - len(silent)) // they were deleted there meanwhile
	var again []letter                                        // copied under another UIDVALIDITY
	var before int64                                          // of these those that another migration copied
	letters = slices.DeleteFunc(letters, func(l letter) bool {
		if l.size > MaxMessage {
			lost = append(lost, Failure{f.name, l.uid, tooLarge})
			return true
		}
		return false
	})
	if f.renumbered {
		if letters, again, before, err = f.split(ctx, letters); err != nil {
			return ours{err}
		}
		end.done += before
		end.skipped += before
	}
	more, gone, err := f.bodies(ctx, letters)
	if err != nil {
		return err
	}
	lost = append(lost, more...)
	end.failed = int64(len(lost))
	end.done += end.failed + gone
	return f.settle(ctx, end, last, again, lost)
}

// describe asks about messages. silent are those that are there, and of which the
// source says nothing even so.
func (f *copying) describe(uids []uint32) (letters []letter, silent []uint32, err error) {
	for silent = uids; len(silent) > 0; {
		some, err := f.src.describe(silent, f.renumbered)
		if err != nil {
			return nil, nil, err
		}
		letters = append(letters, some...)
		known := func(uid uint32) bool { return slices.ContainsFunc(some, func(l letter) bool { return l.uid == uid }) }
		if silent, err = f.src.still(slices.DeleteFunc(slices.Clone(silent), known)); err != nil {
			return nil, nil, err
		}
		if len(some) == 0 {
			break
		}
	}
	slices.SortFunc(letters, func(a, b letter) int { return cmp.Compare(a.uid, b.uid) })
	return letters, silent, nil
}

const tooLarge = "The message is larger than 50 MB."

// split divides messages into new ones and those that were copied before, by
// their digests, and says how many of these another migration counted.
func (f *copying) split(ctx context.Context, letters []letter) (fresh, again []letter, before int64, err error) {
	for _, l := range letters {
		l.digest = digest(l.id, &l)
		by, err := f.knows(ctx, f.from, l.digest, f.validity, f.Mailbox)
		if err != nil {
			return nil, nil, 0, err
		}
		switch by {
		case 0:
			fresh = append(fresh, l)
			continue
		case f.ID:
		default:
			before++
		}
		again = append(again, l)
	}
	return fresh, again, before, nil
}
