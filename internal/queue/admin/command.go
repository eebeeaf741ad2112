// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/queue/dispatch"
)

// Command selects deliveries and the options of an operation on them.
type Command struct {
	Filter
	All    bool   // must be set when the filter is empty
	Reason string // reason of a hold or a drop
	// ExistingOnly limits a hold or release to existing deliveries. Otherwise a hold by destination
	// or by account alone also holds future deliveries.
	ExistingOnly bool
	Silent       bool // the senders of dropped submissions get no bounce
	DryRun       bool // only count
	// Wait is how long a drop waits for nodes to release leased deliveries.
	Wait     time.Duration
	Progress func(Result) // called after each chunk; may be nil
	// Limit is the approximate maximum of rows to read; 0: all. After continues the same command
	// where Limit ended it: it is the Result's Next.
	Limit int
	After string
}

// Result counts deliveries.
type Result struct {
	Matched   int // deliveries that match the filter
	Changed   int // deliveries that were changed; none with DryRun
	Leased    int // leased deliveries: the node holds them on release, unless they become final
	StillHeld int // not released, because another hold applies
	// Next continues where Command.Limit ended the command; "" if the command is done.
	Next string
}

// maxChangedRows is the maximum of deliveries changed in one commit.
const maxChangedRows = 200

// maxReason is the maximum length of a reason, in bytes.
const maxReason = 500

// Normalize normalizes the command. It returns a fault.Invalid if a field is invalid.
func (c *Command) Normalize() error {
	var bad fault.FieldErrors
	if err := bad.Merge(c.Filter.Normalize()); err != nil {
		return err
	}
	if len(c.Reason) > maxReason {
		bad.Add("reason", "too_long", "A reason can have %d bytes.", maxReason)
	}
	c.Reason = db.CleanText(c.Reason, maxReason)
	if _, err := c.start(); err != nil {
		addCursorError(&bad)
	}
	if (c.Filter == Filter{}) && !c.All {
		bad.Add("all", "required", "Choose what is meant, or say that everything is.")
	}
	if (c.Filter != Filter{}) && c.All {
		bad.Add("all", "conflicting", "Choose what is meant, or everything, not both.")
	}
	return bad.Err()
}

// holdTarget returns the kind and target of the hold that the command adds or removes; "" for none.
func (c *Command) holdTarget() (queue.HoldKind, string) {
	switch c.Filter {
	case Filter{Destination: c.Destination}:
		if c.Destination != "" && !c.ExistingOnly {
			return queue.HoldDestination, c.Destination
		}
	case Filter{Account: c.Account}:
		if !c.ExistingOnly {
			return queue.HoldAccount, strconv.FormatInt(int64(c.Account), 10)
		}
	}
	return "", ""
}

// allIndexes is the order in which a command walks the indexes. The leased index comes first and
// last, so that the walk meets deliveries that a node claims or releases in between.
var allIndexes = []int{indexLeased, indexWaiting, indexHeld, indexLeased}

// start returns the cursor where the command's walk begins.
func (c *Command) start() (listCursor, error) {
	at, err := parseCursor(c.After)
	if at.Pass < 0 || at.Pass > len(allIndexes) {
		err = errCursor
	}
	return at, err
}

// forEachChunk calls do with the deliveries that the command selects, in chunks.
func (q *Queue) forEachChunk(ctx context.Context, c *Command, indexes []int, res *Result, do func([]Entry) error) error {
	if c.Message != 0 {
		indexes = []int{indexWaiting} // one query reads all deliveries of a message
	}
	at, err := c.start()
	if err != nil {
		return err
	}
	seen := map[dispatch.Key]bool{} // leased deliveries, whose index is walked twice
	rows := 0
	for pass := at.Pass; pass < len(indexes); pass++ {
		if c.After == "" || pass > at.Pass {
			at = listCursor{Pass: pass, Index: indexes[pass], Due: startCursor.Due}
		}
		for at.Index == indexes[pass] {
			if c.Limit > 0 && rows >= c.Limit {
				res.Next = at.String()
				return nil
			}
			list, next, err := q.readPage(ctx, &c.Filter, at, maxChangedRows)
			if err != nil {
				return err
			}
			rows += maxChangedRows
			at = next
			at.Pass = pass
			list = slices.DeleteFunc(list, func(e Entry) bool { return seen[e.key()] })
			if err := q.processChunk(ctx, c, list, seen, do); err != nil {
				return err
			}
			if c.Progress != nil {
				c.Progress(*res)
			}
		}
	}
	return nil
}

// processChunk calls do with the selected rows of one page.
func (q *Queue) processChunk(ctx context.Context, c *Command, list []Entry, seen map[dispatch.Key]bool, do func([]Entry) error) (err error) {
	if c.Sender != "" {
		if list, err = q.addViewsAndFilter(ctx, &c.Filter, list); err != nil {
			return err
		}
	}
	for _, e := range list {
		if e.lease > 0 {
			seen[e.key()] = true
		}
	}
	if len(list) == 0 {
		return nil
	}
	return do(list)
}

// updateEntries runs one conditional update for each entry, in one commit, and returns the integer
// that each changed row returned.
func (q *Queue) updateEntries(ctx context.Context, list []Entry, update func(e *Entry) db.Statement) (returned []int64, err error) {
	err = q.DB.Write(ctx, list[0].Message, &db.Mutation{Guard: func(b *db.Batch) {
		returned = returned[:0]
		for i := range list {
			b.Queue(update(&list[i])).Each(func(r db.Row) error {
				var n int64
				err := r.Scan(&n)
				returned = append(returned, n)
				return err
			})
		}
	}})
	return returned, err
}

// retryOnConflict repeats try after an id conflict. Commands in other processes have no node
// number, so two processes may generate the same id.
func (q *Queue) retryOnConflict(try func() error) (err error) {
	for range 20 {
		if err = try(); !q.DB.IsConflict(err) {
			break
		}
	}
	return err
}

// messageInfo returns the event data of a message. A deleted message has only its account.
func (q *Queue) messageInfo(ctx context.Context, message, account db.ID) (queue.MessageInfo, error) {
	about, err := q.Describe(ctx, message)
	if fault.Is(err, fault.NotFound) {
		return queue.MessageInfo{Account: account}, nil
	}
	return about, err
}
