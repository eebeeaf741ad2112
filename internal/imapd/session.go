// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// sessionState is the state of a session (RFC 3501 §3): not authenticated while mailboxID is 0,
// selected while view is not nil.
type sessionState struct {
	mailboxID      db.ID // the mailbox that has logged in
	mailbox        mailbox.Mailbox
	sessionID      db.ID // its row in the list of sessions; 0 for none
	view           *folder.View
	readOnly       bool           // EXAMINE
	expungePending bool           // whether messages are gone that the client still numbers
	savedUIDs      []folder.Range // UIDs of the last SEARCH RETURN (SAVE): "$"
	keywordCount   int            // number of the folder's keywords that the client knows
	enabledExtensions
	wroteTagged bool // whether the current command wrote its tagged response itself
}

// dispatch runs a command if it is allowed in the session's state. It writes the untagged responses
// and returns the code of the tagged OK, or an error: a *wire.Error is the response itself.
func (s *session) dispatch(cmd wire.Command) (wire.Code, error) {
	switch cmd := cmd.(type) {
	case *wire.Capability:
		return s.capability()
	case *wire.Noop:
		return s.noop()
	case *wire.Logout:
		return s.logout()
	case *wire.ID:
		return s.identifyClient(cmd)
	}
	if s.mailboxID == 0 {
		return s.dispatchBeforeLogin(cmd)
	}
	switch cmd := cmd.(type) {
	case *wire.Enable:
		return s.enable(cmd)
	case *wire.Namespace:
		return s.namespace()
	case *wire.List:
		return s.list(cmd)
	case *wire.Lsub:
		return s.lsub(cmd)
	case *wire.StatusCommand:
		return s.status(cmd)
	case *wire.Select:
		return s.selectFolder(cmd)
	case *wire.Create:
		return s.create(cmd)
	case *wire.Delete:
		return s.delete(cmd)
	case *wire.Rename:
		return s.rename(cmd)
	case *wire.Subscribe:
		return s.subscribe(cmd)
	case *wire.Unsubscribe:
		return s.unsubscribe(cmd)
	case *wire.Append:
		return s.append(cmd)
	case *wire.Idle:
		return s.idle()
	case *wire.GetQuota:
		return s.getQuota(cmd)
	case *wire.GetQuotaRoot:
		return s.getQuotaRoot(cmd)
	case *wire.SetQuota:
		return s.setQuota()
	case *wire.Compress:
		return s.compress(cmd)
	case *wire.Unauthenticate:
		return s.unauthenticate()
	case *wire.Login, *wire.Authenticate, *wire.StartTLS:
		return "", bad("You are logged in already.")
	}
	return s.dispatchSelected(cmd)
}

func (s *session) dispatchBeforeLogin(cmd wire.Command) (wire.Code, error) {
	switch cmd := cmd.(type) {
	case *wire.StartTLS:
		return s.startTLSCommand()
	case *wire.Login:
		return s.loginCommand(cmd)
	case *wire.Authenticate:
		return s.authenticate(cmd)
	}
	return "", bad("Log in first.")
}

// dispatchSelected runs the commands of the selected state.
func (s *session) dispatchSelected(cmd wire.Command) (wire.Code, error) {
	do, changes := s.selectedCommand(cmd)
	switch {
	case do == nil:
		return "", bad("This server does not offer that command.")
	case s.view == nil:
		return "", bad("Select a mailbox first.")
	case changes && s.readOnly:
		return "", no(wire.CodeReadOnly, "The mailbox is open for reading only.")
	}
	return do()
}

// selectedCommand returns the function that runs a command of the selected state, nil if there is
// none, and whether it changes the folder.
func (s *session) selectedCommand(cmd wire.Command) (do func() (wire.Code, error), changes bool) {
	switch cmd := cmd.(type) {
	case *wire.Check:
		return s.check, false
	case *wire.Close:
		return s.closeCommand, false
	case *wire.Unselect:
		return s.unselect, false
	case *wire.Fetch:
		return func() (wire.Code, error) { return s.fetch(cmd) }, false
	case *wire.Search:
		return func() (wire.Code, error) { return s.search(cmd) }, false
	case *wire.Sort:
		return func() (wire.Code, error) { return s.sort(cmd) }, false
	case *wire.Thread:
		return func() (wire.Code, error) { return s.thread(cmd) }, false
	case *wire.Copy:
		return func() (wire.Code, error) { return s.copy(cmd) }, false
	case *wire.Store:
		return func() (wire.Code, error) { return s.store(cmd) }, true
	case *wire.Move:
		return func() (wire.Code, error) { return s.move(cmd) }, true
	case *wire.Expunge:
		return func() (wire.Code, error) { return s.expunge(cmd) }, true
	case *wire.Replace:
		return func() (wire.Code, error) { return s.replace(cmd) }, true
	}
	return nil, false
}
