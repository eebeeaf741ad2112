// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/signal"
)

const (
	// maxAtOnce is how many of the messages count that are moved by one command:
	// who tidies up a hundred thousand teaches little by it.
	maxAtOnce = 100
	// keptTokens is how many words an account has once the rare ones are
	// forgotten, which is looked to after so many lessons.
	keptTokens = 100_000
	pruneEvery = 50
	pruneChunk = 5_000
	// lessonDays is how long it is known that a message was learned.
	lessonDays = 400
	maxHeader  = 256 << 10
	// learnLook is how often it is looked for what another node was told.
	learnLook = 10 * time.Second
)

var (
	addTasks = db.SQL(`INSERT INTO spam_task (message, account, spam)
		SELECT f.message, b.account, $5 FROM folder_message f JOIN mailbox b ON b.id = $1
		WHERE f.folder = $2 AND f.uid BETWEEN $3 AND $4 GROUP BY f.message, b.account ORDER BY MIN(f.uid)
		ON CONFLICT (message) DO UPDATE SET spam = excluded.spam`)
	nextTask   = db.SQL(`SELECT message, account, spam FROM spam_task WHERE message > 0 ORDER BY message LIMIT 1`)
	deleteTask = db.SQL(`DELETE FROM spam_task WHERE message = $1 AND spam = $2`)
	lessonOf   = db.SQL(`SELECT spam FROM spam_lesson WHERE account = $1 AND mark = $2`)
	addLesson  = db.SQL(`INSERT INTO spam_lesson (account, mark, spam, day) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`)
	turnLesson = db.SQL(`UPDATE spam_lesson SET spam = $3, day = $4 WHERE account = $1 AND mark = $2 AND spam <> $3`)
	teach      = db.SQL(`INSERT INTO spam_taught (account, spam, ham) VALUES ($1, $2, $3)
		ON CONFLICT (account) DO UPDATE SET spam = spam_taught.spam + excluded.spam, ham = spam_taught.ham + excluded.ham`)
	count = db.SQL(`INSERT INTO spam_token (account, token, spam, ham, day) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (account, token) DO UPDATE SET spam = spam_token.spam + excluded.spam, ham = spam_token.ham + excluded.ham, day = excluded.day`)
	countTokens = db.SQL(`SELECT COUNT(*) FROM spam_token WHERE account = $1`)
	forget      = db.SQL(`DELETE FROM spam_token WHERE account = $1 AND token IN (
			SELECT token FROM spam_token WHERE account = $1 ORDER BY spam + ham, day LIMIT $2)`)
	forgetLessons = db.SQL(`DELETE FROM spam_lesson WHERE account = $1 AND day < $2`)
)

// Sorted takes it as a lesson that a person moved or copied messages: into Junk
// they are spam; out of it, and filed elsewhere out of the inbox, they are ham,
// but for what is thrown away. It is learned later.
func (b *Bayes) Sorted(ctx context.Context, mailbox db.ID, c *folder.Copied) error {
	spam := c.To.Special == folder.Junk
	ham := c.From.Special == folder.Junk && c.To.Special != folder.Trash ||
		c.From.Name == folder.Inbox && (c.To.Special == "" || c.To.Special == folder.Archive)
	if len(c.Dst) == 0 || c.From.Special == c.To.Special && spam || !spam && !ham {
		return nil
	}
	// The writer is not to look through all of them.
	first := c.Runs()[0]
	_, err := b.DB.Exec(ctx, addTasks.With(mailbox, c.To.ID, first.Lo, min(first.Hi, first.Lo+maxAtOnce-1), spam))
	select {
	case b.kick <- struct{}{}:
	default:
	}
	return err
}

// Run learns what there is to learn until ctx ends. Every node runs it; the duty
// "learning" lets one at a time work.
func (b *Bayes) Run(ctx context.Context) error {
	signal.Repeat(ctx, b.kick, func(ctx context.Context) (time.Duration, error) {
		if more, err := b.LearnOne(ctx); err != nil || !more {
			return learnLook, err
		}
		return 0, nil
	}, func(err error) { b.Log.Error("the spam filter could not learn", "error", err) })
	return nil
}

// errNotNow declines a job: another node learns, or has learned it.
var errNotNow = errors.New("another node does it")

// task is a message to learn.
type task struct {
	message, account db.ID
	spam             bool
}

// LearnOne learns one message, in one commit, and returns whether there may be
// more.
func (b *Bayes) LearnOne(ctx context.Context) (more bool, err error) {
	var t task
	err = b.DB.One(ctx, nextTask.With(), &t.message, &t.account, &t.spam)
	if errors.Is(err, db.ErrNoRow) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	mark, words, err := b.read(ctx, t.message)
	if err != nil && ctx.Err() != nil {
		return false, err
	}
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Denied) {
		b.Log.Warn("a message can't be learned", "message", t.message, "error", err)
	}
	lesson := &db.Job{Guard: func(batch *db.Batch) {
		b.Node.HoldDuty(batch, "learning", errNotNow)
		batch.Queue(deleteTask.With(t.message, t.spam)).Else(errNotNow)
	}}
	if err == nil {
		if lesson, err = b.lesson(ctx, &t, mark, words); err != nil {
			return false, err
		}
	}
	err = b.DB.Write(ctx, t.account, lesson)
	if errors.Is(err, errNotNow) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	b.young.grew(t.account)
	return true, b.prune(ctx, t.account)
}

// lesson makes the job that counts a message: nothing if it was learned as the
// same before, and if it was learned as the other that is taken back.
func (b *Bayes) lesson(ctx context.Context, t *task, mark uint64, words []uint64) (*db.Job, error) {
	var before bool
	err := b.DB.One(ctx, lessonOf.With(t.account, int64(mark)), &before)
	known := err == nil
	if err != nil && !errors.Is(err, db.ErrNoRow) {
		return nil, err
	}
	day := b.day()
	spam, ham := 0, 1
	if t.spam {
		spam, ham = 1, 0
	}
	if known {
		spam, ham = spam-ham, ham-spam
	}
	changes := !known || before != t.spam
	return &db.Job{
		Guard: func(batch *db.Batch) {
			b.Node.HoldDuty(batch, "learning", errNotNow)
			batch.Queue(deleteTask.With(t.message, t.spam)).Else(errNotNow)
			switch {
			case !known:
				batch.Queue(addLesson.With(t.account, int64(mark), t.spam, day)).Else(errNotNow)
			case changes:
				batch.Queue(turnLesson.With(t.account, int64(mark), t.spam, day)).Else(errNotNow)
			}
		},
		Apply: func(batch *db.Batch) {
			if !changes {
				return
			}
			batch.Queue(teach.With(t.account, spam, ham))
			for _, w := range words {
				batch.Queue(count.With(t.account, int64(w), spam, ham, day))
			}
		},
	}, nil
}

func (b *Bayes) day() int64 { return b.Now().Unix() / (24 * 60 * 60) }

// read returns a message's mark and words.
func (b *Bayes) read(ctx context.Context, id db.ID) (mark uint64, words []uint64, err error) {
	index, r, err := b.Folders.OpenParts(ctx, id)
	if err != nil {
		return 0, nil, err
	}
	defer r.Close() //nolint:errcheck // only read
	head := make([]byte, min(index.Parts[0].Header.Len, maxHeader))
	if _, err := r.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, nil, err
	}
	h := message.Header(head)
	words, err = tokens(h, index, r)
	text := ""
	for _, name := range []string{"Message-ID", "Date", "From", "Subject"} {
		text += clipped(h.Text(name)) + "\x00"
	}
	if len(text) == 4 {
		for _, w := range words {
			text += strconv.FormatUint(w, 36)
		}
	}
	return fnv(text), words, err
}

// prune forgets, now and then, the words of an account that were seen the least
// and the longest ago.
func (b *Bayes) prune(ctx context.Context, account db.ID) error {
	var spam, ham, has int
	if err := b.DB.One(ctx, taughtBy.With(account), &spam, &ham); err != nil || (spam+ham)%pruneEvery != 0 {
		if errors.Is(err, db.ErrNoRow) {
			err = nil
		}
		return err
	}
	if err := b.DB.One(ctx, countTokens.With(account), &has); err != nil {
		return err
	}
	return b.forget(ctx, account, has-keptTokens)
}

// forget forgets n words of an account, a little at a time, and the lessons of
// long ago.
func (b *Bayes) forget(ctx context.Context, account db.ID, n int) error {
	for {
		gone := int64(0)
		err := b.DB.Tx(ctx, func(tx *db.Tx) (err error) {
			if gone, err = tx.Exec(ctx, forget.With(account, max(0, min(n, pruneChunk)))); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, forgetLessons.With(account, b.day()-lessonDays))
			return err
		})
		if n -= int(gone); err != nil || gone == 0 || n <= 0 {
			return err
		}
	}
}
