// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
)

var (
	// The flags become flags & $4 | $5. What has them already keeps its
	// mod-sequence.
	setFlags = db.SQL(`UPDATE folder_message SET flags = (flags & $4) | $5, modseq = $6
		WHERE folder = $3 AND uid BETWEEN $1 AND $2 AND (flags & $4) | $5 <> flags`)
	setFlagsList = db.SQL(`UPDATE folder_message SET flags = (flags & $18) | $19, modseq = $20
		WHERE folder = $17 AND uid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`)
	setKeywords = db.SQL(`UPDATE folder_message SET flags = (flags & $4) | $5, modseq = $6, keywords = $7
		WHERE folder = $3 AND uid BETWEEN $1 AND $2 AND ((flags & $4) | $5 <> flags OR keywords <> $7)`)
	setKeywordsList = db.SQL(`UPDATE folder_message SET flags = (flags & $18) | $19, modseq = $20, keywords = $21
		WHERE folder = $17 AND uid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`)
)

// StoreFlags are what View.Store does.
type StoreFlags struct {
	Op       Op
	Flags    Flags
	Keywords []string
	// UnchangedSince, if Conditional, leaves alone every message whose
	// mod-sequence is higher (RFC 7162 §3.1.3).
	Conditional    bool
	UnchangedSince uint64
}

// masks returns what to keep of a message's flags and what to add.
func (c *StoreFlags) masks() (keep, add Flags) {
	given := c.Flags & AllFlags
	switch c.Op {
	case Add:
		return AllFlags, given
	case Remove:
		return AllFlags &^ given, 0
	}
	return 0, given
}

// touchesWords reports whether keywords may change.
func (c *StoreFlags) touchesWords() bool { return c.Op == Replace || len(c.Keywords) > 0 }

// wordChange remembers what the operation makes of each set of keywords.
type wordChange struct {
	table *wordTable
	op    Op
	words []string
	made  map[uint32]uint32
}

func (w *wordChange) of(id uint32) (uint32, error) {
	if to, ok := w.made[id]; ok {
		return to, nil
	}
	to, err := w.table.change(id, w.op, w.words)
	if err == nil {
		w.made[id] = to
	}
	return to, err
}

// storePlan is what a Store is to do, as reckoned on a snapshot.
type storePlan struct {
	keep, add Flags
	groups    []storeGroup
	touched   spans   // for the log
	asked     []entry // as they are afterwards; modseq is 0 if they change
	put       []entry // those that change
	unseen    int64   // how many fewer are unseen
	failed    []uint32
}

// commit notes the mod-sequence of the change.
func (p *storePlan) commit(modseq uint64) {
	for _, list := range [][]entry{p.asked, p.put} {
		for i := range list {
			if list[i].modseq == 0 {
				list[i].modseq = modseq
			}
		}
	}
}

// storeGroup are messages that get the same keywords.
type storeGroup struct {
	words uint32
	spans spans
}

// Store changes the flags of messages, in parts: with an error, changed and failed
// tell of those before it. changed has the flags of all messages that it was asked
// for and that are still there, also of those that had them before; a Sync does
// not tell of them again. failed are the UIDs that UnchangedSince excluded. Bad
// keywords are a fault.Invalid.
func (v *View) Store(ctx context.Context, uids []uint32, change StoreFlags) (changed []FlagChange, failed []uint32, err error) {
	if err := checkKeywords(change.Keywords); err != nil {
		return nil, nil, err
	}
	words := &wordChange{v.shared.words, change.Op, change.Keywords, map[uint32]uint32{}}
	for part := range slices.Chunk(uids, v.store.Part) {
		// The log is not to grow with the number of parts.
		log := max(1, logRanges*len(part)/len(uids))
		some, not, err := v.storeSome(ctx, part, &change, words, log)
		changed, failed = append(changed, some...), append(failed, not...)
		if err != nil {
			return changed, failed, err
		}
	}
	return changed, failed, nil
}

// storeSome changes the flags of some messages in one commit, with so many ranges
// in the log.
func (v *View) storeSome(ctx context.Context, uids []uint32, change *StoreFlags, words *wordChange, log int) ([]FlagChange, []uint32, error) {
	sh := v.shared
	var plan *storePlan
	var before, now *snapshot // of the shared view, around the change
	err := sh.repeatedly(ctx, func() error {
		base, since := sh.state()
		var err error
		if plan, err = planStore(base, uids, change, words); err != nil {
			return err
		}
		if len(plan.put) == 0 {
			// Unless another node has just changed what seems to need none.
			before, now = base, base
			return sh.unchanged(ctx, since)
		}
		was, modseq, err := v.commitStore(ctx, plan, since, change.touchesWords(), log)
		if err != nil {
			return err
		}
		plan.commit(modseq)
		before, now = sh.publish(since, modseq, plan.put, nil)
		sh.tell(was, modseq, totals{unseen: plan.unseen})
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return v.takeOver(before, now, uids, plan, words), plan.failed, nil
}

// planStore reckons what a Store has to do.
func planStore(base *snapshot, uids []uint32, change *StoreFlags, words *wordChange) (*storePlan, error) {
	p := &storePlan{}
	p.keep, p.add = change.masks()
	withWords := change.touchesWords()
	for index, e := range base.pick(uids) {
		if change.Conditional && e.modseq > change.UnchangedSince {
			p.failed = append(p.failed, e.uid)
			continue
		}
		to := e
		to.flags = e.flags&p.keep | p.add
		if withWords {
			var err error
			if to.words, err = words.of(e.words); err != nil {
				return nil, err
			}
		}
		if to == e {
			p.asked = append(p.asked, to)
			continue
		}
		to.modseq = 0
		p.asked, p.put = append(p.asked, to), append(p.put, to)
		p.touched.add(index, e.uid)
		p.unseen += int64(e.flags&Seen^Seen) - int64(to.flags&Seen^Seen)
		// A group ends where other keywords begin, so that its spans hold
		// no message with other ones.
		if last := len(p.groups) - 1; last < 0 || p.groups[last].words != to.words && withWords {
			p.groups = append(p.groups, storeGroup{words: to.words})
		}
		p.groups[len(p.groups)-1].spans.add(index, e.uid)
	}
	return p, nil
}

// commitStore has the database do it, and returns the folder's mod-sequence
// before and after it.
func (v *View) commitStore(ctx context.Context, p *storePlan, since uint64, withWords bool, most int) (was, modseq uint64, err error) {
	sh := v.shared
	// Who reads the log reads the messages too: one more is no mistake.
	log := rangesText(coarse(p.touched.ranges(), most))
	err = v.store.DB.Write(ctx, v.row.Mailbox, &db.Job{
		Guard: func(b *db.Batch) {
			b.Queue(mailbox.Hold(v.row.Mailbox))
			b.Queue(totals{unseen: p.unseen}.take(sh.id, since, step(log))).One(&was, &modseq).Else(errStale)
		},
		Apply: func(b *db.Batch) {
			for _, g := range p.groups {
				for piece := range pieces(g.spans.list) {
					args := []any{sh.id, int64(p.keep), int64(p.add), int64(modseq)}
					if withWords {
						args = append(args, sh.words.text(g.words))
						b.Queue(piece.with(setKeywords, setKeywordsList, args...))
					} else {
						b.Queue(piece.with(setFlags, setFlagsList, args...))
					}
				}
			}
			sh.logChange(b, since, modseq, false, log)
		},
	})
	return was, modseq, err
}

// with binds the piece and what follows it to the query for spans or lists.
func (p piece) with(span, list *db.Query, args ...any) db.Statement {
	if p.list != nil {
		return list.With(append(p.list[:listSize:listSize], args...)...)
	}
	return span.With(append([]any{int64(p.Lo), int64(p.Hi)}, args...)...)
}

// takeOver makes the session know what the messages are now, and returns it to
// be told. Sync does not tell it again: should others expunge them meanwhile,
// they stay in the session's numbering as its client heard of them last.
func (v *View) takeOver(before, now *snapshot, uids []uint32, p *storePlan, words *wordChange) []FlagChange {
	inStep := v.snap == before
	if inStep {
		v.snap = now
	}
	var known []entry
	changed := make([]FlagChange, 0, len(p.asked))
	asked := p.asked
	for index, e := range v.snap.pick(uids) {
		for len(asked) > 0 && asked[0].uid < e.uid {
			asked = asked[1:]
		}
		if len(asked) == 0 {
			break
		}
		if asked[0].uid != e.uid {
			continue
		}
		c := v.flagChange(index, asked[0])
		if !inStep {
			to, err := words.of(e.words)
			c.Others = err != nil || to != asked[0].words || to == otherWords || e.flags&p.keep|p.add != asked[0].flags
			known = append(known, asked[0])
		}
		changed = append(changed, c)
	}
	if !inStep {
		v.snap = v.snap.with(known, nil)
	}
	return changed
}
