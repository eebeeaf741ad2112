// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"cmp"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/message"
)

// fetcher handles one FETCH.
type fetcher struct {
	session        *session
	cmd            *wire.Fetch
	items          wire.FetchItems
	fields         folder.FetchFields
	needsIndex     bool                          // whether a section needs the message's index
	needsHeader    bool                          // whether a section is of the message's own header
	hasBinary      bool                          // whether a section must be decoded
	newlySeen      map[uint32]*folder.FlagChange // by UID, messages that became \Seen, not reported yet
	remaining      int                           // messages that must still be answered
	nextLoginCheck time.Time                     // no check of the login before
	err            error                         // of messages that could not be read
}

// fetch handles FETCH. It sets \Seen for all messages with one write before the first response, so
// that each response includes it. It leaves out messages that can't be read, and then ends with NO
// after the others.
func (s *session) fetch(cmd *wire.Fetch) (wire.Code, error) {
	f := fetcher{session: s, cmd: cmd, items: cmd.Items}
	if err := f.checkVanishedModifier(); err != nil {
		return "", err
	}
	uids, err := f.targetUIDs()
	if err != nil {
		return "", err
	}
	if cmd.Items&wire.FetchModSeq != 0 {
		s.enableCondStore()
	}
	f.planFields()
	if cmd.Vanished {
		if err := f.writeVanishedModifier(); err != nil {
			return "", err
		}
	}
	if f.setsSeen() && !s.readOnly {
		if err := f.markSeen(uids); err != nil {
			return "", err
		}
	}
	f.remaining = len(uids)
	err = s.view.Fetch(s.ctx(), uids, f.fields, f.writeRow)
	if errors.As(err, new(*connError)) { // a row has begun, and nothing can be reported within it
		return "", err
	}
	if told := f.writeSeen(uids); told != nil {
		return "", told
	}
	if err != nil || f.err != nil {
		return "", cmp.Or(err, f.err)
	}
	if f.remaining > 0 && !cmd.Messages.UID {
		return "", expungeIssuedError()
	}
	return "", nil
}

// checkVanishedModifier rejects items of extensions that are not announced or not enabled.
func (f *fetcher) checkVanishedModifier() error {
	if f.cmd.Vanished && !f.session.qresync {
		return bad("VANISHED needs ENABLE QRESYNC.")
	}
	return nil
}

// targetUIDs returns the UIDs of the messages to fetch.
func (f *fetcher) targetUIDs() ([]uint32, error) {
	if f.cmd.HasChangedSince && f.cmd.Partial == (wire.Page{}) && f.cmd.Messages.UID && !f.cmd.Messages.Saved {
		set, err := f.session.resolveNumbers(f.cmd.Messages)
		return f.session.view.ChangedIn(folderRanges(set), f.cmd.ChangedSince), err
	}
	uids, err := f.session.resolve(f.cmd.Messages)
	if err != nil {
		return nil, err
	}
	if f.cmd.Partial != (wire.Page{}) { // of all named messages, before CHANGEDSINCE (RFC 9394 §3.4)
		lo, hi := f.cmd.Partial.Bounds(uint64(len(uids)))
		uids = uids[lo:hi]
	}
	if f.cmd.HasChangedSince {
		uids = f.session.view.ChangedSince(uids, f.cmd.ChangedSince)
	}
	return uids, nil
}

// planFields determines the fields to read.
func (f *fetcher) planFields() {
	if f.items&(wire.FetchInternalDate|wire.FetchSaveDate|wire.FetchEmailID) != 0 {
		f.fields |= folder.FetchDates
	}
	if f.items&wire.FetchThreadID != 0 {
		f.fields |= folder.FetchThread
	}
	if f.items&wire.FetchEnvelope != 0 {
		f.fields |= folder.FetchEnvelope
	}
	if f.items&(wire.FetchBody|wire.FetchBodyStructure) != 0 {
		f.fields |= folder.FetchStructure
	}
	for i := range f.cmd.Sections {
		f.fields |= folder.FetchContent
		f.needsIndex = f.needsIndex || needsIndex(&f.cmd.Sections[i])
		f.needsHeader = f.needsHeader || isTopHeader(&f.cmd.Sections[i])
		f.hasBinary = f.hasBinary || isBinary(&f.cmd.Sections[i])
	}
	if f.items&wire.FetchPreview != 0 {
		f.fields |= folder.FetchContent
		f.needsIndex = true
	}
	if f.needsIndex {
		f.fields |= folder.FetchStructure
	}
}

// setsSeen reports whether the command sets \Seen.
func (f *fetcher) setsSeen() bool {
	for i := range f.cmd.Sections {
		if !f.cmd.Sections[i].Peek {
			return true
		}
	}
	return false
}

// markSeen sets \Seen where it is missing. If that fails, as on a full disk, clients can still read
// their mail. With many messages, the first ones may have the flag then.
func (f *fetcher) markSeen(uids []uint32) error {
	var unseen []uint32
	err := f.session.view.Fetch(f.session.ctx(), uids, 0, func(r *folder.MessageRow) error {
		if r.Flags&folder.Seen == 0 {
			unseen = append(unseen, r.UID)
		}
		return nil
	})
	if err != nil || len(unseen) == 0 {
		return err
	}
	changed, _, err := f.session.view.UpdateFlags(f.session.ctx(), unseen, folder.FlagUpdate{Op: folder.AddFlags, Flags: folder.Seen})
	if err != nil && !fault.Is(err, fault.NotFound) { // the folder was deleted just now
		f.session.logger().Error("imap: setting \\Seen", "err", err)
	}
	f.newlySeen = make(map[uint32]*folder.FlagChange, len(changed))
	for i := range changed {
		f.newlySeen[changed[i].UID] = &changed[i]
	}
	return nil
}

// writeSeen reports messages that became \Seen but could not be fetched, because they were expunged
// by then or can't be read: the session knows them as seen.
func (f *fetcher) writeSeen(uids []uint32) error {
	var left []folder.FlagChange
	if len(f.newlySeen) > 0 {
		for _, uid := range uids {
			if c := f.newlySeen[uid]; c != nil {
				left = append(left, *c)
			}
		}
	}
	return f.session.eachChange(left, f.session.writeFlags)
}

// writeRow writes the response for one message. An error ends the command.
func (f *fetcher) writeRow(r *folder.MessageRow) error {
	if err := f.session.ctx().Err(); err != nil { // not an error of the message
		return err
	}
	f.remaining--
	var b *messageBody
	if f.needsBody(r) {
		err := f.checkAccess()
		if err != nil {
			f.newlySeen = nil // nothing more can be reported
			return err
		}
		if b, err = f.openBody(r); err != nil {
			f.recordFailure(r, err)
			return nil
		}
		defer b.close()
		err = f.readHeader(b)
		if err == nil {
			err = f.measureBinary(b)
		}
		if err == nil {
			err = f.makePreview(b)
		}
		if err := f.session.ctx().Err(); err != nil {
			return err
		}
		if err != nil {
			f.recordFailure(r, err)
			return nil
		}
	}
	var index *message.Structure
	if f.items&(wire.FetchBody|wire.FetchBodyStructure) != 0 {
		var err error
		if index, err = f.session.Folders.MessageIndex(f.session.ctx(), r); err != nil {
			f.recordFailure(r, err)
			return f.session.ctx().Err()
		}
	}
	if f.items&wire.FetchEnvelope != 0 {
		var err error
		if r.Envelope, err = f.session.Folders.Envelope(f.session.ctx(), r); err != nil {
			f.recordFailure(r, err)
			return f.session.ctx().Err()
		}
	}
	items := f.items
	if f.newlySeen[r.UID] != nil {
		delete(f.newlySeen, r.UID)
		items |= wire.FetchFlags
		if f.session.condStore {
			items |= wire.FetchModSeq
		}
	}
	out := f.session.w.Fetch(r.Seq)
	f.writeItems(&out, items, r, index)
	if items&wire.FetchPreview != 0 {
		b.writePreview(&out)
	}
	for i := range f.cmd.Sections {
		if err := b.write(&out, f.cmd.Sections, i); err != nil {
			// The row has begun, so only closing the connection can signal the error.
			f.logReadError(r, err)
			return wrapConnError(err)
		}
	}
	out.End()
	err := f.session.w.Err()
	if blob.IsLost(err) || errors.Is(err, wire.ErrShortLiteral) { // within a literal
		f.logReadError(r, err)
	}
	return err
}

// loginRecheckDelay is the delay after which a FETCH checks its login again if the database could
// not tell.
const loginRecheckDelay = time.Second

// checkAccess returns a BYE once the login has ended: fetching all bodies of a folder may take
// hours.
func (f *fetcher) checkAccess() error {
	now := f.session.Now()
	if now.Before(f.nextLoginCheck) {
		return nil
	}
	told, err := f.session.checkLoginIfKnown()
	if !told {
		f.nextLoginCheck = now.Add(loginRecheckDelay)
	}
	return cmp.Or(err, f.session.checkSuspended())
}

// writeItems writes the items that don't need the message's bytes.
func (f *fetcher) writeItems(out *wire.FetchResponse, items wire.FetchItems, r *folder.MessageRow, index *message.Structure) {
	if items&wire.FetchUID != 0 {
		out.UID(r.UID)
	}
	if items&wire.FetchFlags != 0 {
		out.Flags(f.session.wireFlags(r.Flags, r.Keywords))
	}
	if items&wire.FetchInternalDate != 0 {
		out.InternalDate(r.Date.UTC())
	}
	if items&wire.FetchSaveDate != 0 {
		out.SaveDate(r.SavedAt.UTC())
	}
	if items&wire.FetchSize != 0 {
		out.Size(int64(r.Size))
	}
	if items&wire.FetchModSeq != 0 {
		out.ModSeq(r.ModSeq)
	}
	if items&wire.FetchEmailID != 0 {
		out.EmailID(emailID(r.Message))
	}
	if items&wire.FetchThreadID != 0 {
		out.ThreadID(threadID(r))
	}
	if items&wire.FetchEnvelope != 0 {
		out.Raw("ENVELOPE", r.Envelope)
	}
	if items&wire.FetchBody != 0 {
		out.Raw("BODY", index.Body())
	}
	if items&wire.FetchBodyStructure != 0 {
		out.Raw("BODYSTRUCTURE", index.BodyStructure())
	}
}

// recordFailure records that a message could not be read.
func (f *fetcher) recordFailure(r *folder.MessageRow, err error) {
	if errors.As(err, new(*wire.Error)) {
		f.err = err
		return
	}
	f.logReadError(r, err)
	f.err = unreadableError()
}

func (f *fetcher) logReadError(r *folder.MessageRow, err error) {
	f.session.logger().Error("imap: reading a message", "folder", f.session.view.Folder().ID, "uid", r.UID, "message", r.Message, "err", err)
}
