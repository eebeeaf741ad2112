// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
)

const (
	// A node's first block in a window is small. Each further block that it needs soon is twice the
	// last one: a busy account then needs few draws, and an idle one loses little.
	minBlock, maxBlock = 16, 4096
	blockGrowthTime    = 10 * time.Second
	// blockFraction limits a block to this fraction of the remaining quota.
	blockFraction = 32
	// idleTimeout is how long an unused block stays before it is returned.
	idleTimeout = 5 * time.Second
)

// The extra is granted only as a whole, while plenty remains, and not across the warning mark: so
// drawn quota counts as used at the warning.
var drawBlockQuery = db.SQL(`INSERT INTO quota_window (account, key, name, starts_at, used, block, warned)
	VALUES ($1, $2, $3, $4, CAST($5 AS BIGINT) + $6, $5 + $6, CASE WHEN $5 >= CAST($8 AS BIGINT) THEN CAST($9 AS BIGINT) ELSE 0 END)
	ON CONFLICT (account, key, name, starts_at) DO UPDATE SET
		block = $5 + CASE WHEN $7 - quota_window.used - $5 >= 32 * $6 AND (quota_window.used + $5 + $6 < $8 OR quota_window.used + $5 >= $8) THEN $6 ELSE 0 END,
		used = quota_window.used + $5 + CASE WHEN $7 - quota_window.used - $5 >= 32 * $6 AND (quota_window.used + $5 + $6 < $8 OR quota_window.used + $5 >= $8) THEN $6 ELSE 0 END,
		warned = CASE WHEN quota_window.warned = 0 AND quota_window.used + $5 >= $8 THEN $9 ELSE quota_window.warned END
	WHERE quota_window.used + $5 <= $7
	RETURNING used, block, warned`)

// warnAt returns the usage at which the account is warned: 80 % of the limit.
func (c *counter) warnAt() int64 {
	if c.limit == 0 || c.key == roleMailKey || c.key == returnedMailKey { // the account itself does not send this mail
		return 2 * unlimitedAmount
	}
	return (4*c.limit + 4) / 5
}

// extraWanted returns how much the node wants in addition to what it needs.
func (c *counter) extraWanted(now time.Time) int64 {
	wish := int64(minBlock)
	if c.lastBlock > 0 && now.Sub(c.pool.readAt) < blockGrowthTime {
		wish = max(wish, 2*c.lastBlock)
	}
	drawn := c.drawn + c.need
	wish = min(wish, maxBlock, (c.ceiling()-drawn)/blockFraction)
	if mark := c.warnAt(); drawn < mark {
		wish = min(wish, mark-1-drawn)
	}
	return max(0, wish)
}

// draw reserves what a send needs, and draws what the node lacks. accountState.drawMu is held.
func (l *Limiter) draw(ctx context.Context, a *accountState, w Consumer, of amounts) ([]counter, error) {
	now := l.Now()
	a.mu.Lock()
	all := a.counters(w, now, of)
	if reserveAll(all, now) { // another call has drawn in between
		a.mu.Unlock()
		return all, nil
	}
	var lacks []*counter
	for i := range all {
		c := &all[i]
		if c.reserve(now); c.need > 0 {
			c.extra = c.extraWanted(now)
			lacks = append(lacks, c)
		}
	}
	err := longestExhausted(lacks, now, func(c *counter) bool {
		return !c.pool.readAt.IsZero() && now.Sub(c.pool.readAt) < recheckAfter && c.remaining() < c.need
	})
	a.mu.Unlock()
	granted := make([]block, len(lacks))
	if err == nil {
		err = l.drawBlocks(ctx, a.id, lacks, granted)
	}
	if err == nil {
		err = l.checkGranted(ctx, a, w, lacks, granted, now)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, c := range lacks {
		if granted[i].size == 0 {
			continue
		}
		c.reserved += c.need
		if c.pool.start.Equal(c.start) {
			c.drawn, c.lastBlock, c.readAt, c.usedAt = granted[i].total, granted[i].size-c.need, now, now
			c.unspent += granted[i].size - c.need
		}
		c.need = 0
	}
	if err != nil {
		releaseAll(all)
		return nil, err
	}
	return all, nil
}

// block is the result of a draw; size is 0 if nothing was granted.
type block struct{ total, size, warned int64 }

// drawBlocks draws for each counter separately, and records warnings in the same commit, which may
// include other calls.
func (l *Limiter) drawBlocks(ctx context.Context, id db.ID, lacks []*counter, granted []block) error {
	draw := int64(l.DB.NewID())
	warned := false
	err := l.DB.Write(ctx, id, &db.Mutation{
		Guard: func(batch *db.Batch) {
			clear(granted)
			for i, c := range lacks {
				b := &granted[i]
				batch.Queue(drawBlockQuery.With(id, c.key, c.name.String(), db.Micros(c.start), c.need, c.extra, c.ceiling(), c.warnAt(), draw)).
					One(&b.total, &b.size, &b.warned)
			}
		},
		Apply: func(batch *db.Batch) {
			warned = false
			for i, c := range lacks {
				b := granted[i]
				if b.size > 0 && b.warned == draw {
					e := event.RecordParams{Account: id, Kind: event.RateLimitWarning, Data: c.warning(b.total - b.size + c.need)}
					if s, err := l.Events.RecordStatement(e); err == nil { // its data is plain
						warned = true
						batch.Queue(s)
					}
				}
				if c.name == sendsPerDay && b.size > 0 && b.total == b.size { // the first draw of the day
					batch.Queue(dropWindowsQuery.With(id, db.Micros(c.start)))
				}
			}
		},
		AfterCommit: func() {
			if warned {
				l.Events.WakeSequencer()
			}
		},
	})
	if err != nil {
		clear(granted) // losing quota is better than spending it twice
	}
	return err
}

var dropWindowsQuery = db.SQL(`DELETE FROM quota_window WHERE account = $1 AND starts_at < $2`)

// checkGranted returns the error of a draw that was not granted, and reads the current usage.
func (l *Limiter) checkGranted(ctx context.Context, a *accountState, w Consumer, lacks []*counter, granted []block, now time.Time) error {
	none := func(c *counter) bool {
		for i := range lacks {
			if lacks[i] == c {
				return granted[i].size == 0
			}
		}
		return false
	}
	err := longestExhausted(lacks, now, none)
	if err == nil {
		return nil
	}
	if failed := l.readWindows(ctx, a, w, now); failed != nil {
		return failed
	}
	return err
}

// longestExhausted returns the error of the exhausted limit that resets last.
func longestExhausted(all []*counter, now time.Time, is func(*counter) bool) error {
	var last *counter
	for _, c := range all {
		if is(c) && (last == nil || c.endsAt().After(last.endsAt())) {
			last = c
		}
	}
	if last == nil {
		return nil
	}
	return last.exhaustedError(now)
}

// Warning is the data of a rate_limit_warning event: 80 % of an hourly or daily limit of an account
// or of one of its keys is used.
type Warning struct {
	Name     string    `json:"name" enum:"sends_per_hour,sends_per_day,recipients_per_day" doc:"The limit."`
	Window   string    `json:"window" enum:"hour,day" doc:"What it is counted by, in UTC."`
	Limit    int64     `json:"limit" doc:"How much is allowed in the window." example:"1000"`
	Used     int64     `json:"used" doc:"How much of it is used." example:"800"`
	ResetsAt time.Time `json:"resets_at" doc:"When the window ends and the next begins."`
	APIKey   *db.ID    `json:"api_key_id" doc:"The API key whose own limit it is; null for the account's."`
}

func (c *counter) warning(used int64) Warning {
	w := Warning{Name: c.name.String(), Window: "day", Limit: c.limit, Used: used, ResetsAt: c.endsAt()}
	if c.name == sendsPerHour {
		w.Window = "hour"
	}
	if c.key != 0 {
		w.APIKey = &c.key
	}
	return w
}
