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
	setFlagsQuery = db.SQL(`UPDATE folder_message SET flags = (flags & $4) | $5, modseq = $6
		WHERE folder = $3 AND uid BETWEEN $1 AND $2 AND (flags & $4) | $5 <> flags`)
	setFlagsListQuery = db.SQL(`UPDATE folder_message SET flags = (flags & $18) | $19, modseq = $20
		WHERE folder = $17 AND uid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`)
	setKeywordsQuery = db.SQL(`UPDATE folder_message SET flags = (flags & $4) | $5, modseq = $6, keywords = $7
		WHERE folder = $3 AND uid BETWEEN $1 AND $2 AND ((flags & $4) | $5 <> flags OR keywords <> $7)`)
	setKeywordsListQuery = db.SQL(`UPDATE folder_message SET flags = (flags & $18) | $19, modseq = $20, keywords = $21
		WHERE folder = $17 AND uid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`)
)

// FlagUpdate are what View.UpdateFlags does.
type FlagUpdate struct {
	Op       FlagOp
	Flags    Flags
	Keywords []string
	// UnchangedSince, if Conditional, leaves alone every message whose
	// mod-sequence is higher (RFC 7162 §3.1.3).
	HasUnchangedSince bool
	UnchangedSince    uint64
}

// masks returns what to keep of a message's flags and what to add.
func (c *FlagUpdate) masks() (keep, add Flags) {
	given := c.Flags & AllFlags
	switch c.Op {
	case AddFlags:
		return AllFlags, given
	case RemoveFlags:
		return AllFlags &^ given, 0
	}
	return 0, given
}

// changesKeywords reports whether keywords may change.
func (c *FlagUpdate) changesKeywords() bool { return c.Op == ReplaceFlags || len(c.Keywords) > 0 }

// keywordChange remembers what the operation makes of each set of keywords.
type keywordChange struct {
	table    *keywordTable
	op       FlagOp
	keywords []string
	results  map[uint32]uint32
}

func (w *keywordChange) apply(id uint32) (uint32, error) {
	if to, ok := w.results[id]; ok {
		return to, nil
	}
	to, err := w.table.change(id, w.op, w.keywords)
	if err == nil {
		w.results[id] = to
	}
	return to, err
}

// flagPlan is what a Store is to do, as reckoned on a snapshot.
type flagPlan struct {
	keep, add Flags
	groups    []keywordGroup
	touched   spanBuilder // for the log
	requested []entry     // as they are afterwards; modseq is 0 if they change
	changed   []entry     // those that change
	unseen    int64       // how many fewer are unseen
	failed    []uint32
}

// commit notes the mod-sequence of the change.
func (p *flagPlan) commit(modseq uint64) {
	for _, list := range [][]entry{p.requested, p.changed} {
		for i := range list {
			if list[i].modseq == 0 {
				list[i].modseq = modseq
			}
		}
	}
}

// keywordGroup are messages that get the same keywords.
type keywordGroup struct {
	keywords uint32
	spans    spanBuilder
}

// UpdateFlags changes the flags of messages, in parts: with an error, changed and failed
// tell of those before it. changed has the flags of all messages that it was asked
// for and that are still there, also of those that had them before; a Sync does
// not tell of them again. failed are the UIDs that UnchangedSince excluded. Bad
// keywords are a fault.Invalid.
func (v *View) UpdateFlags(ctx context.Context, uids []uint32, change FlagUpdate) (changed []FlagChange, failed []uint32, err error) {
	if err := checkKeywords(change.Keywords); err != nil {
		return nil, nil, err
	}
	words := &keywordChange{v.shared.keywords, change.Op, change.Keywords, map[uint32]uint32{}}
	for part := range slices.Chunk(uids, v.store.BatchSize) {
		// The log is not to grow with the number of parts.
		log := max(1, maxLogRanges*len(part)/len(uids))
		some, not, err := v.updateFlagsBatch(ctx, part, &change, words, log)
		changed, failed = append(changed, some...), append(failed, not...)
		if err != nil {
			return changed, failed, err
		}
	}
	return changed, failed, nil
}

// updateFlagsBatch changes the flags of some messages in one commit, with so many ranges
// in the log.
func (v *View) updateFlagsBatch(ctx context.Context, uids []uint32, change *FlagUpdate, words *keywordChange, log int) ([]FlagChange, []uint32, error) {
	sh := v.shared
	var plan *flagPlan
	var before, now *snapshot // of the shared view, around the change
	err := sh.retryStale(ctx, func() error {
		base, since := sh.current()
		var err error
		if plan, err = planFlags(base, uids, change, words); err != nil {
			return err
		}
		if len(plan.changed) == 0 {
			// Unless another node has just changed what seems to need none.
			before, now = base, base
			return sh.checkUnchanged(ctx, since)
		}
		was, modseq, err := v.commitFlags(ctx, plan, since, change.changesKeywords(), log)
		if err != nil {
			return err
		}
		plan.commit(modseq)
		before, now = sh.publish(since, modseq, plan.changed, nil)
		sh.notifyOthers(was, modseq, totals{unseen: plan.unseen})
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return v.adoptFlags(before, now, uids, plan, words), plan.failed, nil
}

// planFlags reckons what a Store has to do.
func planFlags(base *snapshot, uids []uint32, change *FlagUpdate, words *keywordChange) (*flagPlan, error) {
	p := &flagPlan{}
	p.keep, p.add = change.masks()
	withWords := change.changesKeywords()
	for index, e := range base.eachOf(uids) {
		if change.HasUnchangedSince && e.modseq > change.UnchangedSince {
			p.failed = append(p.failed, e.uid)
			continue
		}
		to := e
		to.flags = e.flags&p.keep | p.add
		if withWords {
			var err error
			if to.keywords, err = words.apply(e.keywords); err != nil {
				return nil, err
			}
		}
		if to == e {
			p.requested = append(p.requested, to)
			continue
		}
		to.modseq = 0
		p.requested, p.changed = append(p.requested, to), append(p.changed, to)
		p.touched.add(index, e.uid)
		p.unseen += int64(e.flags&Seen^Seen) - int64(to.flags&Seen^Seen)
		// A group ends where other keywords begin, so that its spans hold
		// no message with other ones.
		if last := len(p.groups) - 1; last < 0 || p.groups[last].keywords != to.keywords && withWords {
			p.groups = append(p.groups, keywordGroup{keywords: to.keywords})
		}
		p.groups[len(p.groups)-1].spans.add(index, e.uid)
	}
	return p, nil
}

// commitFlags has the database do it, and returns the folder's mod-sequence
// before and after it.
func (v *View) commitFlags(ctx context.Context, p *flagPlan, since uint64, withWords bool, most int) (was, modseq uint64, err error) {
	sh := v.shared
	// Who reads the log reads the messages too: one more is no mistake.
	log := formatRanges(coarsen(p.touched.ranges(), most))
	err = v.store.DB.Write(ctx, v.row.Mailbox, &db.Mutation{
		Guard: func(b *db.Batch) {
			b.Queue(mailbox.LockUsage(v.row.Mailbox))
			b.Queue(totals{unseen: p.unseen}.removeStatement(sh.id, since, modSeqStep(log))).One(&was, &modseq).OrFail(errStale)
		},
		Apply: func(b *db.Batch) {
			for _, g := range p.groups {
				for piece := range uidBatches(g.spans.list) {
					args := []any{sh.id, int64(p.keep), int64(p.add), int64(modseq)}
					if withWords {
						args = append(args, sh.keywords.text(g.keywords))
						b.Queue(piece.statement(setKeywordsQuery, setKeywordsListQuery, args...))
					} else {
						b.Queue(piece.statement(setFlagsQuery, setFlagsListQuery, args...))
					}
				}
			}
			sh.logChange(b, since, modseq, false, log)
		},
	})
	return was, modseq, err
}

// statement binds the piece and what follows it to the query for spans or lists.
func (p uidBatch) statement(span, list *db.Query, args ...any) db.Statement {
	if p.list != nil {
		return list.With(append(p.list[:uidListSize:uidListSize], args...)...)
	}
	return span.With(append([]any{int64(p.Lo), int64(p.Hi)}, args...)...)
}

// adoptFlags makes the session know what the messages are now, and returns it to
// be told. Sync does not tell it again: should others expunge them meanwhile,
// they stay in the session's numbering as its client heard of them last.
func (v *View) adoptFlags(before, now *snapshot, uids []uint32, p *flagPlan, words *keywordChange) []FlagChange {
	inStep := v.snap == before
	if inStep {
		v.snap = now
	}
	var known []entry
	changed := make([]FlagChange, 0, len(p.requested))
	asked := p.requested
	for index, e := range v.snap.eachOf(uids) {
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
			to, err := words.apply(e.keywords)
			c.ChangedByOthers = err != nil || to != asked[0].keywords || to == overflowKeywords || e.flags&p.keep|p.add != asked[0].flags
			known = append(known, asked[0])
		}
		changed = append(changed, c)
	}
	if !inStep {
		v.snap = v.snap.apply(known, nil)
	}
	return changed
}
