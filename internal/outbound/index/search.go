// SPDX-License-Identifier: Apache-2.0

package index

import (
	"cmp"
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue"
)

var (
	olderByTermQuery = db.SQL(`SELECT message FROM outbound_term WHERE account = $1 AND term = $5 AND message > $2 AND message < $3
		ORDER BY message DESC LIMIT $4`)
	newerByTermQuery = db.SQL(`SELECT message FROM outbound_term WHERE account = $1 AND term = $5 AND message > $2 AND message < $3
		ORDER BY message LIMIT $4`)
	olderInThreadQuery = db.SQL(`SELECT id FROM outbound_message WHERE account = $1 AND thread_id = $5 AND thread_id <> '' AND id > $2 AND id < $3
		ORDER BY id DESC LIMIT $4`)
	newerInThreadQuery = db.SQL(`SELECT id FROM outbound_message WHERE account = $1 AND thread_id = $5 AND thread_id <> '' AND id > $2 AND id < $3
		ORDER BY id LIMIT $4`)
	olderQuery = db.SQL(`SELECT id FROM outbound_message WHERE account = $1 AND id > $2 AND id < $3 ORDER BY id DESC LIMIT $4`)
	newerQuery = db.SQL(`SELECT id FROM outbound_message WHERE account = $1 AND id > $2 AND id < $3 ORDER BY id LIMIT $4`)
)

// search looks for one page of messages. It goes through the ids between lo and hi, both excluded,
// newest first or, if ascending, oldest first.
type search struct {
	index   *Index
	account db.ID
	*compiledFilter
	lo, hi                           db.ID
	ascending                        bool
	limit                            int
	indexReadsLeft, messageReadsLeft int // remaining work

	found  []Message
	lastID db.ID // the last id that was checked
}

// idSource lists ids between two others, in the direction of the search.
type idSource func(ctx context.Context, lo, hi db.ID, limit int) ([]db.ID, error)

func (x *search) querySource(older, newer *db.Query, args ...any) idSource {
	query := older
	if x.ascending {
		query = newer
	}
	return func(ctx context.Context, lo, hi db.ID, limit int) ([]db.ID, error) {
		args := append([]any{x.account, lo, hi, limit}, args...)
		return db.All(ctx, x.index.DB, query.With(args...), db.ScanID)
	}
}

// unionSource returns a source of the ids of all sources together.
func (x *search) unionSource(sources []idSource) idSource {
	if len(sources) == 1 {
		return sources[0]
	}
	return func(ctx context.Context, lo, hi db.ID, limit int) ([]db.ID, error) {
		var all []db.ID
		for _, s := range sources {
			some, err := s(ctx, lo, hi, limit)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
		read := len(all)
		slices.SortFunc(all, x.compare)
		all = slices.Compact(all)
		all = all[:min(len(all), limit)]
		x.indexReadsLeft -= read - len(all) // the caller counts the others
		return all, nil
	}
}

// listSource returns a source of known ids.
func (x *search) listSource(ids []db.ID) idSource {
	slices.SortFunc(ids, x.compare)
	return func(_ context.Context, lo, hi db.ID, limit int) ([]db.ID, error) {
		var some []db.ID
		for _, id := range ids {
			if id > lo && id < hi && len(some) < limit {
				some = append(some, id)
			}
		}
		return some, nil
	}
}

// currentSources returns the sources that know every message. termSources returns those that know
// only the messages seen by the first indexing pass.
func (x *search) currentSources(ctx context.Context) (sources []idSource, err error) {
	if x.Thread != "" {
		sources = append(sources, x.querySource(olderInThreadQuery, newerInThreadQuery, x.Thread))
	}
	var inState []idSource
	for _, status := range x.Statuses {
		s, err := x.statusSource(ctx, status)
		if err != nil {
			return nil, err
		}
		if s == nil { // the other states alone would not find its messages
			return sources, nil
		}
		inState = append(inState, s)
	}
	if len(inState) > 0 {
		sources = append(sources, x.unionSource(inState))
	}
	return sources, nil
}

// statusSource returns the source of the messages with a status, nil if there is none.
func (x *search) statusSource(ctx context.Context, status queue.State) (idSource, error) {
	if status.Indexed() {
		return func(ctx context.Context, lo, hi db.ID, limit int) ([]db.ID, error) {
			return x.index.Queue.MessagesInState(ctx, x.account, status, lo, hi, x.ascending, limit)
		}, nil
	}
	if status == queue.Queued || status == queue.Sending {
		open, few, err := x.index.Queue.QueuedOrSendingMessages(ctx, x.account, status)
		if err != nil {
			return nil, err
		}
		if few {
			return x.listSource(open), nil
		}
	}
	return nil, nil
}

func (x *search) termSources() (sources []idSource) {
	for _, t := range x.terms {
		sources = append(sources, x.querySource(olderByTermQuery, newerByTermQuery, hashTerm(t)))
	}
	hashes := [][]int64{}
	for _, group := range x.groups {
		var some []int64
		for _, t := range group {
			some = append(some, hashTerm(t))
		}
		hashes = append(hashes, some)
	}
	if len(x.Domains) > 0 {
		var some []int64
		for _, id := range x.Domains {
			some = append(some, int64(id))
		}
		hashes = append(hashes, some)
	}
	for _, group := range hashes {
		var some []idSource
		for _, h := range group {
			some = append(some, x.querySource(olderByTermQuery, newerByTermQuery, h))
		}
		sources = append(sources, x.unionSource(some))
	}
	return sources
}

// run finds a page. The newest messages may not have terms yet, so run checks them one by one.
func (x *search) run(ctx context.Context) (Result, error) {
	upTo, err := x.index.passPosition(ctx, 0)
	if err != nil {
		return Result{}, err
	}
	all, derived := x.querySource(olderQuery, newerQuery), x.termSources()
	current, err := x.currentSources(ctx)
	if err != nil {
		return Result{}, err
	}
	type region struct {
		sources []idSource
		lo, hi  db.ID
	}
	regions := []region{{current, max(x.lo, upTo), x.hi}, {append(derived, current...), x.lo, min(x.hi, upTo+1)}}
	if len(derived) == 0 {
		regions = []region{{current, x.lo, x.hi}}
	}
	if x.ascending {
		slices.Reverse(regions)
	}
	for _, r := range regions {
		if r.hi-r.lo < 2 { // no ids in between
			continue
		}
		if len(r.sources) == 0 {
			r.sources = []idSource{all}
		}
		if more, err := x.matchRange(ctx, r.sources, r.lo, r.hi); err != nil || more {
			return x.result(more), err
		}
	}
	return x.result(false), nil
}

// result returns the page, newest first.
func (x *search) result(more bool) Result {
	f := Result{Messages: x.found, More: more, Next: x.lastID}
	if len(f.Messages) > x.limit {
		f.Messages = f.Messages[:x.limit]
		f.Next = f.Messages[x.limit-1].ID
	}
	if x.ascending {
		slices.Reverse(f.Messages)
	}
	return f
}

// matchRange checks the ids between lo and hi that all sources have in common. more reports whether
// the page is full or the limit of work was reached.
func (x *search) matchRange(ctx context.Context, sources []idSource, lo, hi db.ID) (more bool, err error) {
	common := x.newIntersection(sources, lo, hi)
	for {
		ids, whole, err := common.next(ctx, BatchSize)
		if err != nil {
			return false, err
		}
		if err := x.match(ctx, ids); err != nil {
			return false, err
		}
		switch {
		case len(x.found) > x.limit:
			return true, nil
		case whole:
			return false, nil
		case x.messageReadsLeft <= 0:
			return true, nil
		case x.indexReadsLeft <= 0:
			x.lastID = common.position()
			return true, nil
		}
	}
}

// match adds the messages that match the filter.
func (x *search) match(ctx context.Context, ids []db.ID) error {
	if len(ids) == 0 {
		return nil
	}
	x.messageReadsLeft -= len(ids)
	x.lastID = ids[len(ids)-1]
	messages, err := x.index.Load(ctx, ids)
	if err != nil {
		return err
	}
	messages = slices.DeleteFunc(messages, func(m Message) bool { return m.Account != x.account || !x.matchesFields(m) })
	slices.SortFunc(messages, func(a, b Message) int { return x.compare(a.ID, b.ID) })
	if err := x.index.AddDeliveries(ctx, messages); err != nil {
		return err
	}
	for _, m := range messages {
		if x.matchesDeliveries(m) {
			x.found = append(x.found, m)
		}
	}
	return nil
}

// compare orders ids in the direction of the search.
func (x *search) compare(a, b db.ID) int {
	if x.ascending {
		return cmp.Compare(a, b)
	}
	return cmp.Compare(b, a)
}

// AddDeliveries loads the deliveries of messages.
func (x *Index) AddDeliveries(ctx context.Context, messages []Message) error {
	for some := range slices.Chunk(messages, queue.MaxDeliveriesOf) {
		ids := make([]db.ID, len(some))
		for i, m := range some {
			ids[i] = m.ID
		}
		deliveries, err := x.Queue.DeliveriesOf(ctx, ids)
		if err != nil {
			return err
		}
		for i := range some {
			some[i].SetDeliveries(deliveries[some[i].ID])
		}
	}
	return nil
}
