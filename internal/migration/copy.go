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
	// maxWindow is the maximum number of messages requested at once.
	maxWindow = 500
	// initialSpan is the number of UIDs in the first search of a folder.
	initialSpan = 100_000
	// maxReadFailures is the number of times that the connection may break at the same message, and
	// maxUnreadable the same for responses that can't be parsed. The job skips the message only
	// then: an unreliable connection must cost no message.
	maxReadFailures, maxUnreadable = 10, 2
	// stuckRetries is the number of fruitless tries in a row after which the job looks for the
	// message at fault. It does so only if the source doesn't reveal the message by where it breaks
	// off. maxSkipped is how many messages it then skips in a row: if none between them can be
	// copied, the source itself is at fault.
	stuckRetries, maxSkipped = maxRetries / 2, 3
)

// copyFolder copies the remaining messages of a folder.
func (j *job) copyFolder(ctx context.Context, src *session, t *folderTask) error {
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
		t.narrowed = t.narrowed || no // if it waits for its second turn
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
	f := &folderCopy{job: j, src: src, folderTask: t, sourceFolder: j.Source.folderHash(t.name)}
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

// createTarget creates the local folder.
func (j *job) createTarget(ctx context.Context, t *folderTask) error {
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

// measureFolder determines the size of a folder in bytes, if it isn't known yet. Only progress
// depends on it: if the source can't say, the sum so far is enough. After a temporary error, this
// holds from the second try on.
func (j *job) measureFolder(ctx context.Context, src *session, t *folderTask, messages uint32) error {
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
	return wrong // the connection may be broken after it
}

// folderCopy copies a folder over one connection.
type folderCopy struct {
	*job
	*folderTask
	src          *session
	sourceFolder int64 // number of the folder in migration_copied
	// renumbered reports whether messages of this folder were copied under another UIDVALIDITY.
	// They are recognized by their digest.
	renumbered bool
	targetFull bool // the local folder can take no more messages
}

// copyAll copies all messages above the last UID that is done. If UIDs are far apart, it doesn't
// search all of them at once. next may be wrong: some sources report too low a UIDNEXT, and
// messages above it would be lost.
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

// handleError determines whether single messages cause an error, to skip them next time.
func (f *folderCopy) handleError(err error, uids []uint32) error {
	var strange protocolError
	words, no := refusal(err)
	switch {
	case !isSourceError(err), f.checkingNeighbor:
	case errors.As(err, &strange):
		f.recordSuspectedFailure(uids, maxUnreadable, "What the source says of it can't be understood.", maxProtocolRetries)
	case no:
		f.recordSuspectedFailure(uids, maxUnreadable, words, maxRetries)
	case f.currentUID != 0:
		f.recordFailure([]uint32{f.currentUID}, maxReadFailures, "The connection broke off each time that it was read.")
	case f.Retries >= stuckRetries && f.skippedInRow < maxSkipped:
		f.recordSuspectedFailure(uids, maxReadFailures, retryReason(err), maxRetries)
	}
	f.currentUID, f.checkingNeighbor = 0, false
	return err
}

// isSourceError reports whether an error is the source's and may be temporary.
func isSourceError(err error) bool {
	var own internalError
	var last permanentError
	return !errors.As(err, &own) && !errors.As(err, &last) && !errors.Is(err, errLeaseLost) && !errors.Is(err, context.Canceled)
}

// recordSuspectedFailure is recordFailure for errors that may come from the source itself, which
// must cost no message. It blames a single message only if the source has just given another one.
// If the folder has no other, all tries but the last count against the source.
func (f *folderCopy) recordSuspectedFailure(uids []uint32, often int, why string, tries int) {
	if len(uids) > 1 || f.neighborReadable || f.noNeighbor && f.Retries >= tries || !f.sourceDoubted {
		f.recordFailure(uids, often, why)
	}
	f.sourceDoubted = true
}

// checkNeighbor checks, for a message in doubt, whether the source gives another message near it.
func (f *folderCopy) checkNeighbor(than uint32) error {
	f.checkingNeighbor = true
	uids, err := f.src.search(than-min(than-1, initialSpan), than+min(1<<32-1-than, initialSpan)) // in a large folder, not all
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

// checkMessage checks whether the source gives a message, with the same commands as copying it.
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

// recordFailure notes that one of some messages can't be read: the next window is smaller. It skips
// a single message that has failed often enough.
func (t *folderTask) recordFailure(uids []uint32, often int, why string) {
	t.narrowed = true
	if len(uids) > 1 {
		t.window = len(uids) / 2
		return
	}
	if t.failureCount[uids[0]]++; t.failureCount[uids[0]] >= often {
		t.skip(uids[0], why)
	}
}

// skip marks a message as unreadable.
func (t *folderTask) skip(uid uint32, why string) {
	t.unreadable[uid], t.narrowed = why, true
	t.skippedInRow++
}

// sourceMessage is a message at the source.
type sourceMessage struct {
	uid       uint32
	seq       uint32 // sequence number
	flags     []string
	hasDate   bool      // the source gives a date
	date      time.Time // zero if it can't be parsed
	dateValid bool      // the date has IMAP's syntax
	size      int64
	identity  string // identity, as far as it is known
	digest    int64
}

// copyWindow copies those messages that have not been copied yet, and records that all of them are
// done.
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
	mails, silent, err := f.fetchMetadata(left)
	if err != nil {
		return err
	}
	for _, uid := range silent {
		lost = append(lost, Failure{f.name, uid, "The source says nothing of it."})
	}
	end.done += int64(len(left) - len(mails) - len(silent)) // deleted at the source meanwhile
	var again []sourceMessage                               // copied under another UIDVALIDITY
	var before int64                                        // how many of these another migration copied
	mails = slices.DeleteFunc(mails, func(l sourceMessage) bool {
		if l.size > MaxMessageSize {
			lost = append(lost, Failure{f.name, l.uid, tooLargeReason})
			return true
		}
		return false
	})
	if f.renumbered {
		if mails, again, before, err = f.splitCopied(ctx, mails); err != nil {
			return internalError{err}
		}
		end.done += before
		end.skipped += before
	}
	more, gone, err := f.copyBodies(ctx, mails)
	if err != nil {
		return err
	}
	lost = append(lost, more...)
	end.failed = int64(len(lost))
	end.done += end.failed + gone
	return f.finishWindow(ctx, end, last, again, lost)
}

// fetchMetadata fetches messages' metadata. silent are the messages that exist but for which the
// source returns nothing.
func (f *folderCopy) fetchMetadata(uids []uint32) (mails []sourceMessage, silent []uint32, err error) {
	for silent = uids; len(silent) > 0; {
		some, err := f.src.fetchMetadata(silent, f.renumbered)
		if err != nil {
			return nil, nil, err
		}
		mails = append(mails, some...)
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
	slices.SortFunc(mails, func(a, b sourceMessage) int { return cmp.Compare(a.uid, b.uid) })
	return mails, silent, nil
}

const tooLargeReason = "The message is larger than 50 MB."

// splitCopied separates new messages from those copied before, by their digests, and counts those
// that another migration copied.
func (f *folderCopy) splitCopied(ctx context.Context, mails []sourceMessage) (fresh, again []sourceMessage, before int64, err error) {
	for _, l := range mails {
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
