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
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/notify"
)

const (
	// maxLessonsPerCommand is the number of messages that count as training per IMAP command:
	// moving a hundred thousand messages says little about each.
	maxLessonsPerCommand = 100
	// maxAccountTokens is the number of tokens an account has left after pruning the rare ones,
	// which happens every pruneEvery lessons.
	maxAccountTokens = 100_000
	pruneEvery       = 50
	pruneBatch       = 5_000
	// lessonDays is how long, in days, the filter remembers that it learned a message.
	lessonDays = 400
	maxHeader  = 256 << 10
	// learnInterval is the time between checks for tasks from other nodes.
	learnInterval = 10 * time.Second
)

var (
	addTasksQuery = db.SQL(`INSERT INTO spam_training_task (message, account, spam)
		SELECT f.message, b.account, $5 FROM folder_message f JOIN mailbox b ON b.id = $1
		WHERE f.folder = $2 AND f.uid BETWEEN $3 AND $4 GROUP BY f.message, b.account ORDER BY MIN(f.uid)
		ON CONFLICT (message) DO UPDATE SET spam = excluded.spam`)
	nextTaskQuery    = db.SQL(`SELECT message, account, spam FROM spam_training_task WHERE message > 0 ORDER BY message LIMIT 1`)
	deleteTaskQuery  = db.SQL(`DELETE FROM spam_training_task WHERE message = $1 AND spam = $2`)
	lessonQuery      = db.SQL(`SELECT spam FROM spam_trained_message WHERE account = $1 AND mark = $2`)
	addLessonQuery   = db.SQL(`INSERT INTO spam_trained_message (account, mark, spam, day) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`)
	flipLessonQuery  = db.SQL(`UPDATE spam_trained_message SET spam = $3, day = $4 WHERE account = $1 AND mark = $2 AND spam <> $3`)
	addTrainingQuery = db.SQL(`INSERT INTO spam_training_total (account, spam, ham) VALUES ($1, $2, $3)
		ON CONFLICT (account) DO UPDATE SET spam = spam_training_total.spam + excluded.spam, ham = spam_training_total.ham + excluded.ham`)
	countTokenQuery = db.SQL(`INSERT INTO spam_token (account, token, spam, ham, day) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (account, token) DO UPDATE SET spam = spam_token.spam + excluded.spam, ham = spam_token.ham + excluded.ham, day = excluded.day`)
	tokenTotalQuery   = db.SQL(`SELECT COUNT(*) FROM spam_token WHERE account = $1`)
	forgetTokensQuery = db.SQL(`DELETE FROM spam_token WHERE account = $1 AND token IN (
			SELECT token FROM spam_token WHERE account = $1 ORDER BY spam + ham, day LIMIT $2)`)
	forgetLessonsQuery = db.SQL(`DELETE FROM spam_trained_message WHERE account = $1 AND day < $2`)
)

// AddTrainingTasks adds training tasks when a user moves or copies messages. Messages moved into
// Junk are spam. Messages moved out of Junk, except into Trash, are ham. So are messages filed from
// the inbox into Archive or a user's folder. Run processes the tasks later.
func (b *Bayes) AddTrainingTasks(ctx context.Context, mailbox db.ID, c *folder.CopyResult) error {
	spam := c.To.SpecialUse == folder.Junk
	ham := c.From.SpecialUse == folder.Junk && c.To.SpecialUse != folder.Trash ||
		c.From.Name == folder.Inbox && (c.To.SpecialUse == "" || c.To.SpecialUse == folder.Archive)
	if len(c.DstUIDs) == 0 || c.From.SpecialUse == c.To.SpecialUse && spam || !spam && !ham {
		return nil
	}
	// Only the first range is used, so that the writer doesn't scan all of them.
	first := c.DstRanges()[0]
	_, err := b.DB.Exec(ctx, addTasksQuery.With(mailbox, c.To.ID, first.Lo, min(first.Hi, first.Lo+maxLessonsPerCommand-1), spam))
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return err
}

// Run processes training tasks until ctx ends. Every node runs it; the leader job "learning" makes
// sure that one node works at a time.
func (b *Bayes) Run(ctx context.Context) error {
	notify.Repeat(ctx, b.wake, func(ctx context.Context) (time.Duration, error) {
		if more, err := b.LearnNext(ctx); err != nil || !more {
			return learnInterval, err
		}
		return 0, nil
	}, func(err error) { b.Log.Error("the spam filter could not learn", "error", err) })
	return nil
}

// trainingTask is a message to learn.
type trainingTask struct {
	message, account db.ID
	spam             bool
}

// LearnNext learns one message, in one commit, and reports whether there may be more.
func (b *Bayes) LearnNext(ctx context.Context) (more bool, err error) {
	var t trainingTask
	if err := b.DB.One(ctx, nextTaskQuery.With(), &t.message, &t.account, &t.spam); err != nil {
		return false, db.IfNoRow(err, nil)
	}
	mark, words, err := b.readTokens(ctx, t.message)
	if err != nil && ctx.Err() != nil {
		return false, err
	}
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Denied) {
		b.Log.Warn("a message can't be learned", "message", t.message, "error", err)
	}
	lesson := &db.Mutation{Guard: func(batch *db.Batch) {
		b.Node.GuardLeaderJob(batch, "learning")
		batch.Queue(deleteTaskQuery.With(t.message, t.spam)).OrFail(lease.ErrNotLeader)
	}}
	if err == nil {
		if lesson, err = b.lessonJob(ctx, &t, mark, words); err != nil {
			return false, err
		}
	}
	err = b.DB.Write(ctx, t.account, lesson)
	if errors.Is(err, lease.ErrNotLeader) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	b.untrained.remove(t.account)
	return true, b.prune(ctx, t.account)
}

// lessonJob returns the mutation that counts a message. It counts nothing if the message was
// learned the same way before. If it was learned the other way, the mutation reverts that.
func (b *Bayes) lessonJob(ctx context.Context, t *trainingTask, mark uint64, words []uint64) (*db.Mutation, error) {
	var before bool
	err := b.DB.One(ctx, lessonQuery.With(t.account, int64(mark)), &before)
	known := err == nil
	if err := db.IfNoRow(err, nil); err != nil {
		return nil, err
	}
	day := b.today()
	spam, ham := 0, 1
	if t.spam {
		spam, ham = 1, 0
	}
	if known {
		spam, ham = spam-ham, ham-spam
	}
	changes := !known || before != t.spam
	return &db.Mutation{
		Guard: func(batch *db.Batch) {
			b.Node.GuardLeaderJob(batch, "learning")
			batch.Queue(deleteTaskQuery.With(t.message, t.spam)).OrFail(lease.ErrNotLeader)
			switch {
			case !known:
				batch.Queue(addLessonQuery.With(t.account, int64(mark), t.spam, day)).OrFail(lease.ErrNotLeader)
			case changes:
				batch.Queue(flipLessonQuery.With(t.account, int64(mark), t.spam, day)).OrFail(lease.ErrNotLeader)
			}
		},
		Apply: func(batch *db.Batch) {
			if !changes {
				return
			}
			batch.Queue(addTrainingQuery.With(t.account, spam, ham))
			for _, w := range words {
				batch.Queue(countTokenQuery.With(t.account, int64(w), spam, ham, day))
			}
		},
	}, nil
}

func (b *Bayes) today() int64 { return b.Now().Unix() / (24 * 60 * 60) }

// readTokens returns a message's mark, which identifies it, and its tokens.
func (b *Bayes) readTokens(ctx context.Context, id db.ID) (mark uint64, words []uint64, err error) {
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
	words, err = tokenize(h, index, r)
	text := ""
	for _, name := range []string{"Message-ID", "Date", "From", "Subject"} {
		text += clip(h.Unfolded(name)) + "\x00"
	}
	if len(text) == 4 {
		for _, w := range words {
			text += strconv.FormatUint(w, 36)
		}
	}
	return fnvHash(text), words, err
}

// prune occasionally deletes an account's tokens that were seen least often and longest ago.
func (b *Bayes) prune(ctx context.Context, account db.ID) error {
	var spam, ham, has int
	if err := b.DB.One(ctx, trainingQuery.With(account), &spam, &ham); err != nil || (spam+ham)%pruneEvery != 0 {
		return db.IfNoRow(err, nil)
	}
	if err := b.DB.One(ctx, tokenTotalQuery.With(account), &has); err != nil {
		return err
	}
	return b.forgetTokens(ctx, account, has-maxAccountTokens)
}

// forgetTokens deletes n tokens of an account, in batches, and old lessons.
func (b *Bayes) forgetTokens(ctx context.Context, account db.ID, n int) error {
	for {
		gone := int64(0)
		err := b.DB.Tx(ctx, func(tx *db.Tx) (err error) {
			if gone, err = tx.Exec(ctx, forgetTokensQuery.With(account, max(0, min(n, pruneBatch)))); err != nil {
				return err
			}
			return tx.Run(ctx, forgetLessonsQuery.With(account, b.today()-lessonDays))
		})
		if n -= int(gone); err != nil || gone == 0 || n <= 0 {
			return err
		}
	}
}
