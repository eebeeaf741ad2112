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
	// maxWindow is how many messages are asked about at once.
	maxWindow = 500
	// A folder of which nothing is known is searched for so many UIDs at once,
	// at first.
	initialSpan = 100_000
	// maxReadFailures is how often the line may break at the same message, and
	// maxUnreadable the same for answers that can't be understood.
	// It is passed over only then: a line that breaks now and then must cost no
	// message.
	maxReadFailures, maxUnreadable = 10, 2
	// stuckRetries is after how many tries in a row that brought nothing it is looked
	// for the message that is to blame, if the source does not tell by where it
	// breaks off; and maxSkipped is how many are then passed over of which none is
	// between them that could be copied: more, and it is the source itself.
	stuckRetries, maxSkipped = maxRetries / 2, 3
)

// copyFolder copies what is left of a folder.
func (j *job) copyFolder(ctx context.Context, src *session, t *task) error {
	if err := j.createTarget(ctx, t); err != nil {
		return wrapInternal(err)
	}
	at, err := src.examine(t.name)
	if err != nil {
		words, no := refusal(err)
		if no && t.openRefused {
			return j.finishFolder(ctx, t, "failed", words)
		}
		t.openRefused = no
		t.narrowed = t.narrowed || no // it waits for its second turn
		return err
	}
	if at.UIDValidity != t.uidValidity {
		t.validityChanged = t.uidValidity != 0
		t.uidValidity, t.lastUID = at.UIDValidity, 0
		clear(t.failureCount)
		clear(t.unreadable)
	}
	if err := j.measureFolder(ctx, src, t, at.NumMessages); err != nil {
		return err
	}
	f := &folderCopy{job: j, src: src, task: t, sourceFolder: j.Source.folderHash(t.name)}
	if f.renumbered, err = j.hasOtherValidity(ctx, f.sourceFolder, t.uidValidity, j.Mailbox); err != nil {
		return internalError{err}
	}
	if at.NumMessages > 0 {
		if err := f.copyAll(ctx, uint32(at.UIDNext)); err != nil {
			return err
		}
	}
	if f.targetFull {
		return j.finishFolder(ctx, t, "failed", folderFullReason+" The rest was not copied.")
	}
	return j.finishFolder(ctx, t, FolderDone, "")
}

// createTarget makes the folder here.
func (j *job) createTarget(ctx context.Context, t *task) error {
	_, err := j.options.Folders.Create(ctx, j.Mailbox, t.target)
	if err != nil && !fault.Is(err, fault.Conflict) {
		if fault.Is(err, fault.RateLimited) {
			return permanentError{"The mailbox has as many folders as it may have. Choose which to copy."}
		}
		return err
	}
	if !t.subscribed {
		return nil
	}
	if err := j.options.Folders.Subscribe(ctx, j.Mailbox, t.target); !fault.Is(err, fault.RateLimited) {
		return err
	}
	return nil
}

// measureFolder finds out how many bytes a folder has, if that is not known yet. It is for
// the progress alone: of a source that can't say, what it has told so far will do,
// the second time if the trouble may pass.
func (j *job) measureFolder(ctx context.Context, src *session, t *task, messages uint32) error {
	if t.bytes >= 0 {
		return nil
	}
	var sum int64
	var wrong error
	if messages > 0 {
		sum, wrong = src.totalSize()
		if _, no := refusal(wrong); no {
			wrong = nil
		}
	}
	if wrong != nil {
		t.narrowed = true
		if !t.sizeFailed {
			t.sizeFailed = true
			return wrong
		}
	}
	err := j.options.DB.Write(ctx, j.Mailbox, &db.Mutation{Guard: func(b *db.Batch) {
		b.Queue(addBytesQuery.With(j.ID, j.leaseID, sum)).OrFail(errLeaseLost)
		b.Queue(setFolderBytesQuery.With(j.ID, t.number, sum))
	}})
	if err != nil {
		return wrapInternal(err)
	}
	t.bytes = sum
	return wrong // after which the line may be broken
}

// folderCopy is a folder while it is copied over a connection.
type folderCopy struct {
	*job
	*task
	src          *session
	sourceFolder int64 // the folder's number in migration_copied
	// renumbered says that messages of this folder were copied under another
	// UIDVALIDITY: they are known by their digest.
	renumbered bool
	targetFull bool // the folder here can take no more
}

// copyAll copies all messages above the last that is done. Of a folder whose UIDs
// are far apart it does not ask for each. next may be wrong: some sources tell too
// low a UIDNEXT, and what is above it would be lost.
func (f *folderCopy) copyAll(ctx context.Context, next uint32) error {
	for span := uint64(initialSpan); ; {
		low, high := f.lastUID+1, uint32(0) // 0 is *
		if uint64(f.lastUID)+span < uint64(next) {
			high = f.lastUID + uint32(span)
		}
		if f.lastUID == 1<<32-1 {
			return nil
		}
		uids, err := f.src.search(low, high)
		if err != nil {
			return err
		}
		for len(uids) > 0 {
			if f.targetFull {
				return nil
			}
			n := min(len(uids), f.window)
			if err := f.copyWindow(ctx, uids[:n]); err != nil {
				return f.handleError(err, uids[:n])
			}
			uids = uids[n:]
			f.window = min(2*f.window, maxWindow)
		}
		if high == 0 {
			return nil
		}
		if f.lastUID < high {
			f.lastUID = high
			span = min(span*4, 1<<31)
		}
	}
}

// handleError finds out whether single messages are to blame for an error, to pass
// over them the next time.
func (f *folderCopy) handleError(err error, uids []uint32) error {
	var strange protocolError
	words, no := refusal(err)
	switch {
	case !isSourceError(err), f.checkingNeighbor:
	case errors.As(err, &strange):
		f.suspect(uids, maxUnreadable, "What the source says of it can't be understood.", maxProtocolRetries)
	case no:
		f.suspect(uids, maxUnreadable, words, maxRetries)
	case f.currentUID != 0:
		f.recordFailure([]uint32{f.currentUID}, maxReadFailures, "The connection broke off each time that it was read.")
	case f.Retries >= stuckRetries && f.skippedInRow < maxSkipped:
		f.suspect(uids, maxReadFailures, retryReason(err), maxRetries)
	}
	f.currentUID, f.checkingNeighbor = 0, false
	return err
}

// isSourceError reports whether an error is the source's, and may pass.
func isSourceError(err error) bool {
	var own internalError
	var last permanentError
	return !errors.As(err, &own) && !errors.As(err, &last) && !errors.Is(err, errLeaseLost) && !errors.Is(err, context.Canceled)
}

// suspect is blame where the source itself may be in trouble, which must cost no
// message: a single one is blamed only where another was given just before. Where
// there is none, all tries but the last are the source's.
func (f *folderCopy) suspect(uids []uint32, often int, why string, tries int) {
	if len(uids) > 1 || f.neighborReadable || f.noNeighbor && f.Retries >= tries || !f.sourceDoubted {
		f.recordFailure(uids, often, why)
	}
	f.sourceDoubted = true
}

// checkNeighbor finds out, for a message that is doubted, whether the source gives
// another one, near it.
func (f *folderCopy) checkNeighbor(than uint32) error {
	f.checkingNeighbor = true
	uids, err := f.src.search(than-min(than-1, initialSpan), than+min(1<<32-1-than, initialSpan)) // of a large folder not all
	if err != nil {
		return err
	}
	uids = slices.DeleteFunc(uids, func(uid uint32) bool { return uid == than || f.unreadable[uid] != "" })
	if f.noNeighbor = len(uids) == 0; !f.noNeighbor {
		at, known := slices.BinarySearch(uids, f.readableUID)
		if !known {
			at = rand.IntN(len(uids)) //nolint:gosec // that one may be bad as well
		}
		f.readableUID = 0
		err = f.checkMessage(uids[at : at+1])
	}
	f.checkingNeighbor = err != nil
	return err
}

// checkMessage finds out whether the source gives a message, as it would be asked for it
// to copy it.
func (f *folderCopy) checkMessage(uid []uint32) error {
	if err := f.src.detectLateUIDs(uid[0]); err != nil {
		return err
	}
	if known, err := f.src.fetchMetadata(uid, f.renumbered); err != nil || len(known) == 0 {
		return err
	}
	return f.src.fetchBodies(uid, func(uint32) {}, func(_ uint32, text imap.LiteralReader) error {
		_, err := io.Copy(io.Discard, text)
		return f.src.wrapError(err)
	}, func(uint32) error { f.neighborReadable, f.readableUID = true, uid[0]; return nil })
}

// recordFailure notes that one of some messages can't be had: fewer of them are asked for
// the next time. A single one is passed over once it was so often enough.
func (t *task) recordFailure(uids []uint32, often int, why string) {
	t.narrowed = true
	if len(uids) > 1 {
		t.window = len(uids) / 2
		return
	}
	if t.failureCount[uids[0]]++; t.failureCount[uids[0]] >= often {
		t.skip(uids[0], why)
	}
}

// skip passes over a message.
func (t *task) skip(uid uint32, why string) {
	t.unreadable[uid], t.narrowed = why, true
	t.skippedInRow++
}

// sourceMessage is a message of the source.
type sourceMessage struct {
	uid       uint32
	seq       uint32 // its sequence number
	flags     []string
	hasDate   bool      // the source tells a date
	date      time.Time // zero if it can't be read
	dateValid bool      // the date is written as IMAP has it
	size      int64
	identity  string // its identity, as far as it is known
	digest    int64
}

// copyWindow copies those of some messages that are not here yet, and notes
// that all of them are done.
func (f *folderCopy) copyWindow(ctx context.Context, uids []uint32) error {
	first, last := uids[0], uids[len(uids)-1]
	here, err := f.copiedUIDs(ctx, f.sourceFolder, f.uidValidity, first, last, f.Mailbox)
	if err != nil {
		return internalError{err}
	}
	var end counters
	var left []uint32
	var lost []Failure
	for _, uid := range uids {
		why, bad := f.unreadable[uid]
		by, known := here[uid]
		if known {
			f.readableUID = uid
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
	if f.neighborReadable, f.noNeighbor = false, false; f.sourceDoubted && len(left) == 1 {
		if err := f.checkNeighbor(left[0]); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		f.currentUID = left[0]
		if err := f.src.detectLateUIDs(f.currentUID); err != nil {
			return err
		}
		f.currentUID = 0
	}
	letters, silent, err := f.fetchMetadata(left)
	if err != nil {
		return err
	}
	for _, uid := range silent {
		lost = append(lost, Failure{f.name, uid, "The source says nothing of it."})
	}
	end.done += int64(len(left) - len(letters) - len(silent)) // they were deleted there meanwhile
	var again []sourceMessage                                 // copied under another UIDVALIDITY
	var before int64                                          // of these those that another migration copied
	letters = slices.DeleteFunc(letters, func(l sourceMessage) bool {
		if l.size > MaxMessageSize {
			lost = append(lost, Failure{f.name, l.uid, tooLargeReason})
			return true
		}
		return false
	})
	if f.renumbered {
		if letters, again, before, err = f.splitCopied(ctx, letters); err != nil {
			return internalError{err}
		}
		end.done += before
		end.skipped += before
	}
	more, gone, err := f.copyBodies(ctx, letters)
	if err != nil {
		return err
	}
	lost = append(lost, more...)
	end.failed = int64(len(lost))
	end.done += end.failed + gone
	return f.finishWindow(ctx, end, last, again, lost)
}

// fetchMetadata asks about messages. silent are those that are there, and of which the
// source says nothing even so.
func (f *folderCopy) fetchMetadata(uids []uint32) (letters []sourceMessage, silent []uint32, err error) {
	for silent = uids; len(silent) > 0; {
		some, err := f.src.fetchMetadata(silent, f.renumbered)
		if err != nil {
			return nil, nil, err
		}
		letters = append(letters, some...)
		known := func(uid uint32) bool {
			return slices.ContainsFunc(some, func(l sourceMessage) bool { return l.uid == uid })
		}
		if silent, err = f.src.existing(slices.DeleteFunc(slices.Clone(silent), known)); err != nil {
			return nil, nil, err
		}
		if len(some) == 0 {
			break
		}
	}
	slices.SortFunc(letters, func(a, b sourceMessage) int { return cmp.Compare(a.uid, b.uid) })
	return letters, silent, nil
}

const tooLargeReason = "The message is larger than 50 MB."

// splitCopied divides messages into new ones and those that were copied before, by
// their digests, and says how many of these another migration counted.
func (f *folderCopy) splitCopied(ctx context.Context, letters []sourceMessage) (fresh, again []sourceMessage, before int64, err error) {
	for _, l := range letters {
		l.digest = digest(l.identity, &l)
		by, err := f.copiedByDigest(ctx, f.sourceFolder, l.digest, f.uidValidity, f.Mailbox)
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
