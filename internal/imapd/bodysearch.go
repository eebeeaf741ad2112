// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"context"
	"errors"
	"os"
	"sync/atomic"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/signal"
)

// How many searches may read message bodies at once. Others wait in the order in which
// they came.
const (
	bodySearchesPerMailbox = 2
	bodySearchesPerAccount = 8
)

// searchSemaphore bounds how many searches read message bodies at once. Its zero value
// is ready to use.
type searchSemaphore struct {
	mailboxes, accounts signal.Turns[db.ID]
}

// acquire waits until another search may read bodies, or until ctx ends. A search that
// waits for its account has a place of its mailbox already, so one mailbox can't fill
// the line of its account.
func (l *searchSemaphore) acquire(ctx context.Context, account, mailbox db.ID) (release func(), err error) {
	leaveMailbox, err := l.mailboxes.Take(ctx, mailbox, bodySearchesPerMailbox)
	if err != nil {
		return nil, err
	}
	leaveAccount, err := l.accounts.Take(ctx, account, bodySearchesPerAccount)
	if err != nil {
		leaveMailbox()
		return nil, err
	}
	return func() { leaveAccount(); leaveMailbox() }, nil
}

// bodySearch is the part of a search that reads message bodies, or waits to do so.
type bodySearch struct {
	*session
	cancel  context.CancelCauseFunc
	waiting atomic.Bool
	over    atomic.Bool
	watched chan struct{} // closed when watch has returned; nil: it was not started
}

// searchView returns the UIDs for which a criterion holds. While the search reads
// bodies, or waits to do so, it ends with the client's connection and log-in; while it
// waits also when the server shuts down.
func (s *session) searchView(c folder.Criterion) ([]uint32, error) {
	ctx, cancel := context.WithCancelCause(s.ctx())
	defer cancel(nil)
	b := bodySearch{session: s, cancel: cancel}
	uids, err := s.view.Search(ctx, c, b.acquire)
	b.end()
	if ctx.Err() != nil && s.ctx().Err() == nil {
		return nil, context.Cause(ctx)
	}
	return uids, err
}

// acquire is called before the search reads the first body.
func (b *bodySearch) acquire(ctx context.Context) (release func(), err error) {
	b.watched = make(chan struct{})
	b.waiting.Store(true)
	defer b.waiting.Store(false)
	go b.watch()
	if b.isDraining() { // watch may have been woken before
		return nil, b.down()
	}
	return b.bodySearches.acquire(ctx, b.login.Account, b.box)
}

// watch cancels the search when its client leaves, or its log-in ends. It sees nothing
// of that once the client has sent its next command.
func (b *bodySearch) watch() {
	defer close(b.watched)
	for {
		err := b.await()
		switch {
		case b.over.Load(), err == nil:
			return
		case errors.Is(err, os.ErrDeadlineExceeded): // a client that waits for an answer may be silent
		case errors.Is(err, errWoken):
			if b.waiting.Load() && b.isDraining() {
				b.cancel(b.down())
				return
			}
			if err := b.current(); err != nil {
				b.cancel(err)
				return
			}
		default:
			b.cancel(lost(err))
			return
		}
	}
}

func (b *bodySearch) down() error {
	return &wire.Error{Status: wire.Bye, Text: "The server is going down."}
}

// end returns once watch has.
func (b *bodySearch) end() {
	if b.watched == nil {
		return
	}
	b.over.Store(true)
	b.stream.wake()
	<-b.watched
}
