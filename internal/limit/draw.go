// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
)

const (
	// A node's first block in a window is small, and each that it needs soon
	// after is twice the last: who sends much asks seldom, and who sends little
	// loses little.
	firstBlock, mostBlock = 16, 4096
	soon                  = 10 * time.Second
	// share bounds a block by the part of what is left.
	share = 32
	// idle is how long a block lies before it is given back.
	idle = 5 * time.Second
)

// The extra is granted only as a whole, while there is plenty, and not beyond
// the mark at which the account is warned: so that what is drawn then is used.
var drawBlock = db.SQL(`INSERT INTO limit_window (account, key, name, starts_at, drawn, block, warned)
	VALUES ($1, $2, $3, $4, CAST($5 AS BIGINT) + $6, $5 + $6, CASE WHEN $5 >= CAST($8 AS BIGINT) THEN CAST($9 AS BIGINT) ELSE 0 END)
	ON CONFLICT (account, key, name, starts_at) DO UPDATE SET
		block = $5 + CASE WHEN $7 - limit_window.drawn - $5 >= 32 * $6 AND (limit_window.drawn + $5 + $6 < $8 OR limit_window.drawn + $5 >= $8) THEN $6 ELSE 0 END,
		drawn = limit_window.drawn + $5 + CASE WHEN $7 - limit_window.drawn - $5 >= 32 * $6 AND (limit_window.drawn + $5 + $6 < $8 OR limit_window.drawn + $5 >= $8) THEN $6 ELSE 0 END,
		warned = CASE WHEN limit_window.warned = 0 AND limit_window.drawn + $5 >= $8 THEN $9 ELSE limit_window.warned END
	WHERE limit_window.drawn + $5 <= $7
	RETURNING drawn, block, warned`)

// mark is from where on the account is told that it nears the limit: 80 %.
func (c *counter) mark() int64 {
	if c.limit == 0 || c.key == roleMail || c.key == returnedMail { // nobody of the account sends that
		return 2 * unlimited
	}
	return (4*c.limit + 4) / 5
}

// wish is how much the node would like beside what it needs.
func (c *counter) wish(now time.Time) int64 {
	wish := int64(firstBlock)
	if c.block > 0 && now.Sub(c.pool.read) < soon {
		wish = max(wish, 2*c.block)
	}
	drawn := c.drawn + c.need
	wish = min(wish, mostBlock, (c.most()-drawn)/share)
	if mark := c.mark(); drawn < mark {
		wish = min(wish, mark-1-drawn)
	}
	return max(0, wish)
}

// draw takes what a send needs, drawing what the node lacks. account.drawing is
// held.
func (l *Limits) draw(ctx context.Context, a *account, w Who, of amounts) ([]counter, error) {
	now := l.Now()
	a.mu.Lock()
	all := a.counters(w, now, of)
	if spend(all, now) { // somebody has drawn meanwhile
		a.mu.Unlock()
		return all, nil
	}
	var lacks []*counter
	for i := range all {
		c := &all[i]
		if c.reserve(now); c.need > 0 {
			c.extra = c.wish(now)
			lacks = append(lacks, c)
		}
	}
	err := exhausted(lacks, now, func(c *counter) bool {
		return !c.pool.read.IsZero() && now.Sub(c.pool.read) < again && c.left() < c.need
	})
	a.mu.Unlock()
	granted := make([]block, len(lacks))
	if err == nil {
		err = l.drawAll(ctx, a.id, lacks, granted)
	}
	if err == nil {
		err = l.denied(ctx, a, w, lacks, granted, now)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, c := range lacks {
		if granted[i].size == 0 {
			continue
		}
		c.mine += c.need
		if c.pool.start.Equal(c.start) {
			c.drawn, c.block, c.read, c.used = granted[i].drawn, granted[i].size-c.need, now, now
			c.spare += granted[i].size - c.need
		}
		c.need = 0
	}
	if err != nil {
		giveBack(all)
		return nil, err
	}
	return all, nil
}

// block is what a draw was granted; size is 0 if nothing.
type block struct{ drawn, size, warned int64 }

// drawAll draws for each counter by itself, and warns in the same commit, which
// it shares with others.
func (l *Limits) drawAll(ctx context.Context, id db.ID, lacks []*counter, granted []block) error {
	draw := int64(l.DB.NewID())
	warned := false
	err := l.DB.Write(ctx, id, &db.Job{
		Guard: func(batch *db.Batch) {
			clear(granted)
			for i, c := range lacks {
				b := &granted[i]
				batch.Queue(drawBlock.With(id, c.key, c.name.String(), db.Micros(c.start), c.need, c.extra, c.most(), c.mark(), draw)).
					One(&b.drawn, &b.size, &b.warned)
			}
		},
		Apply: func(batch *db.Batch) {
			warned = false
			for i, c := range lacks {
				b := granted[i]
				if b.size > 0 && b.warned == draw {
					e := event.New{Account: id, Kind: event.RateLimitWarning, Data: c.warning(b.drawn - b.size + c.need)}
					if s, err := l.Events.Prepare(e); err == nil { // its data is plain
						warned = true
						batch.Queue(s)
					}
				}
				if c.name == sendsPerDay && b.size > 0 && b.drawn == b.size { // it has opened the day
					batch.Queue(dropWindows.With(id, db.Micros(c.start)))
				}
			}
		},
		AfterCommit: func() {
			if warned {
				l.Events.Wake()
			}
		},
	})
	if err != nil {
		clear(granted) // rather lost than spent twice
	}
	return err
}

var dropWindows = db.SQL(`DELETE FROM limit_window WHERE account = $1 AND starts_at < $2`)

// denied returns the fault of a draw that was not granted, and notes how the
// limit stands.
func (l *Limits) denied(ctx context.Context, a *account, w Who, lacks []*counter, granted []block, now time.Time) error {
	none := func(c *counter) bool {
		for i := range lacks {
			if lacks[i] == c {
				return granted[i].size == 0
			}
		}
		return false
	}
	err := exhausted(lacks, now, none)
	if err == nil {
		return nil
	}
	if failed := l.read(ctx, a, w, now); failed != nil {
		return failed
	}
	return err
}

// exhausted returns the fault of the limit that is used up for longest.
func exhausted(all []*counter, now time.Time, is func(*counter) bool) error {
	var last *counter
	for _, c := range all {
		if is(c) && (last == nil || c.ends().After(last.ends())) {
			last = c
		}
	}
	if last == nil {
		return nil
	}
	return last.exhausted(now)
}

// Warning is the data of a rate_limit_warning event: of a limit that an account
// or one of its keys has for an hour or a day, 80 % is used.
type Warning struct {
	Name     string    `json:"name" enum:"sends_per_hour,sends_per_day,recipients_per_day" doc:"The limit."`
	Window   string    `json:"window" enum:"hour,day" doc:"What it is counted by, in UTC."`
	Limit    int64     `json:"limit" doc:"How much is allowed in the window." example:"1000"`
	Used     int64     `json:"used" doc:"How much of it is used." example:"800"`
	ResetsAt time.Time `json:"resets_at" doc:"When the window ends and the next begins."`
	APIKey   *db.ID    `json:"api_key_id" nullable:"true" doc:"The API key whose own limit it is; null for the account's."`
}

func (c *counter) warning(used int64) Warning {
	w := Warning{Name: c.name.String(), Window: "day", Limit: c.limit, Used: used, ResetsAt: c.ends()}
	if c.name == sendsPerHour {
		w.Window = "hour"
	}
	if c.key != 0 {
		w.APIKey = &c.key
	}
	return w
}
