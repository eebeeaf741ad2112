// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"context"
	"errors"
	"os"
	"sync/atomic"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/notify"
)

// Number of searches that may read message bodies at once. Others wait in order of arrival.
const (
	bodySearchesPerMailbox = 2
	bodySearchesPerAccount = 8
)

// searchSemaphore limits how many searches read message bodies at once. Its zero value is ready to
// use.
type searchSemaphore struct {
	mailboxes, accounts notify.KeyedSemaphore[db.ID]
}

// acquire waits until the search may read bodies, or until ctx ends. A search that waits for its
// account already holds a slot of its mailbox, so one mailbox can't fill the queue of its account.
func (l *searchSemaphore) acquire(ctx context.Context, account, mailbox db.ID) (release func(), err error) {
	leaveMailbox, err := l.mailboxes.Acquire(ctx, mailbox, bodySearchesPerMailbox)
	if err != nil {
		return nil, err
	}
	leaveAccount, err := l.accounts.Acquire(ctx, account, bodySearchesPerAccount)
	if err != nil {
		leaveMailbox()
		return nil, err
	}
	return func() { leaveAccount(); leaveMailbox() }, nil
}

// bodySearch is the part of a search that reads message bodies, or waits to do so.
type bodySearch struct {
	session   *session
	cancel    context.CancelCauseFunc
	waiting   atomic.Bool
	finished  atomic.Bool
	watchDone chan struct{} // closed when watch has returned; nil if it was not started
}

// searchFolder returns the UIDs for which a criterion holds. While the search reads bodies or waits
// to do so, it ends with the client's connection and login. While it waits, it also ends when the
// server shuts down.
func (s *session) searchFolder(c search.Criterion) ([]uint32, error) {
	ctx, cancel := context.WithCancelCause(s.ctx())
	defer cancel(nil)
	b := bodySearch{session: s, cancel: cancel}
	uids, err := s.Searcher.Search(ctx, s.view, c, b.acquire)
	b.stop()
	if ctx.Err() != nil && s.ctx().Err() == nil {
		return nil, context.Cause(ctx)
	}
	return uids, err
}

// acquire is called before the search reads its first body.
func (b *bodySearch) acquire(ctx context.Context) (release func(), err error) {
	b.watchDone = make(chan struct{})
	b.waiting.Store(true)
	defer b.waiting.Store(false)
	go b.watch()
	if b.session.isDraining() { // watch may have been woken before
		return nil, b.shutdownError()
	}
	return b.session.bodySearches.acquire(ctx, b.session.mailbox.Account, b.session.mailboxID)
}

// watch cancels the search when its client disconnects or its login ends. It can't detect either
// after the client has sent its next command.
func (b *bodySearch) watch() {
	defer close(b.watchDone)
	for {
		err := b.session.waitCommand()
		switch {
		case b.finished.Load(), err == nil:
			return
		case errors.Is(err, os.ErrDeadlineExceeded): // a client that waits for a response may be silent
		case errors.Is(err, errWoken):
			if b.waiting.Load() && b.session.isDraining() {
				b.cancel(b.shutdownError())
				return
			}
			if err := b.session.checkLogin(); err != nil {
				b.cancel(err)
				return
			}
		default:
			b.cancel(wrapConnError(err))
			return
		}
	}
}

func (b *bodySearch) shutdownError() error {
	return &wire.Error{Status: wire.Bye, Text: "The server is going down."}
}

// stop stops watch and waits until it has returned.
func (b *bodySearch) stop() {
	if b.watchDone == nil {
		return
	}
	b.finished.Store(true)
	b.session.stream.wake()
	<-b.watchDone
}
