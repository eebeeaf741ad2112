// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/mailbox"
)

var (
	// The flags become flags & $4 | $5. Messages that already have them keep their mod-sequence.
	setFlagsQuery = db.SQL(`UPDATE folder_message SET flags = (flags & $4) | $5, modseq = $6
		WHERE folder = $3 AND uid BETWEEN $1 AND $2 AND (flags & $4) | $5 <> flags`)
	setFlagsListQuery = db.SQL(`UPDATE folder_message SET flags = (flags & $18) | $19, modseq = $20
		WHERE folder = $17 AND uid ` + inList)
	setKeywordsQuery = db.SQL(`UPDATE folder_message SET flags = (flags & $4) | $5, modseq = $6, keywords = $7
		WHERE folder = $3 AND uid BETWEEN $1 AND $2 AND ((flags & $4) | $5 <> flags OR keywords <> $7)`)
	setKeywordsListQuery = db.SQL(`UPDATE folder_message SET flags = (flags & $18) | $19, modseq = $20, keywords = $21
		WHERE folder = $17 AND uid ` + inList)
)

// FlagUpdate is the change that View.UpdateFlags makes.
type FlagUpdate struct {
	Op       FlagOp
	Flags    Flags
	Keywords []string
	// UnchangedSince, if HasUnchangedSince is set, excludes every message whose mod-sequence is
	// higher (RFC 7162 §3.1.3).
	HasUnchangedSince bool
	UnchangedSince    uint64
}

// masks returns which of a message's flags to keep and which to add.
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

// keywordChange caches the result of the operation for each keyword set.
type keywordChange struct {
	table    *snapshot.KeywordTable
	op       FlagOp
	keywords []string
	results  map[uint32]uint32
}

func (w *keywordChange) apply(id uint32) (uint32, error) {
	if to, ok := w.results[id]; ok {
		return to, nil
	}
	to, err := w.change(id)
	if err == nil {
		w.results[id] = to
	}
	return to, err
}

func (w *keywordChange) change(id uint32) (uint32, error) {
	switch w.op {
	case AddFlags:
		return w.table.AddToSet(id, w.keywords)
	case RemoveFlags:
		return w.table.RemoveFromSet(id, w.keywords)
	}
	return w.table.AddToSet(0, w.keywords)
}

// flagPlan is the change to make, computed from a snapshot.
type flagPlan struct {
	keep, add Flags
	groups    []keywordGroup
	touched   snapshot.SpanBuilder // for the log
	requested []snapshot.Entry     // requested messages in their new state; modseq is 0 if they change
	changed   []snapshot.Entry     // messages that change
	unseen    int64                // decrease of unseen messages
	failed    []uint32
}

// commit sets the mod-sequence of the change.
func (p *flagPlan) commit(modseq uint64) {
	for _, list := range [][]snapshot.Entry{p.requested, p.changed} {
		for i := range list {
			if list[i].ModSeq == 0 {
				list[i].ModSeq = modseq
			}
		}
	}
}

// keywordGroup is messages that get the same keywords.
type keywordGroup struct {
	keywords uint32
	spans    snapshot.SpanBuilder
}

// UpdateFlags changes the flags of messages, in batches. With an error, changed and failed cover
// the batches before it. changed has the new flags of all requested messages that exist, including
// those that already had them. Sync does not report them again. failed are the UIDs that
// UnchangedSince excluded. It returns a fault.Invalid for bad keywords.
func (v *View) UpdateFlags(ctx context.Context, uids []uint32, change FlagUpdate) (changed []FlagChange, failed []uint32, err error) {
	if err := snapshot.CheckKeywords(change.Keywords); err != nil {
		return nil, nil, err
	}
	words := &keywordChange{v.shared.keywords, change.Op, change.Keywords, map[uint32]uint32{}}
	for part := range slices.Chunk(uids, v.store.BatchSize) {
		// The number of batches must not make the log grow.
		log := max(1, maxLogRanges*len(part)/len(uids))
		some, not, err := v.updateFlagsBatch(ctx, part, &change, words, log)
		changed, failed = append(changed, some...), append(failed, not...)
		if err != nil {
			return changed, failed, err
		}
	}
	return changed, failed, nil
}

// updateFlagsBatch changes the flags of some messages in one commit, with at most log ranges in the
// log.
func (v *View) updateFlagsBatch(ctx context.Context, uids []uint32, change *FlagUpdate, words *keywordChange, log int) ([]FlagChange, []uint32, error) {
	sh := v.shared
	var plan *flagPlan
	var before, now *snapshot.Snapshot // of the shared view, around the change
	err := sh.retryStale(ctx, func() error {
		base, since := sh.current()
		var err error
		if plan, err = planFlagUpdate(base, uids, change, words); err != nil {
			return err
		}
		if len(plan.changed) == 0 {
			// Check that no other node has just changed messages that seem to need no change.
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

// planFlagUpdate computes the change.
func planFlagUpdate(base *snapshot.Snapshot, uids []uint32, change *FlagUpdate, words *keywordChange) (*flagPlan, error) {
	p := &flagPlan{}
	p.keep, p.add = change.masks()
	withWords := change.changesKeywords()
	for index, e := range base.EachOf(uids) {
		if change.HasUnchangedSince && e.ModSeq > change.UnchangedSince {
			p.failed = append(p.failed, e.UID)
			continue
		}
		to := e
		to.Flags = e.Flags&p.keep | p.add
		if withWords {
			var err error
			if to.Keywords, err = words.apply(e.Keywords); err != nil {
				return nil, err
			}
		}
		if to == e {
			p.requested = append(p.requested, to)
			continue
		}
		to.ModSeq = 0
		p.requested, p.changed = append(p.requested, to), append(p.changed, to)
		p.touched.Add(index, e.UID)
		p.unseen += int64(e.Flags&Seen^Seen) - int64(to.Flags&Seen^Seen)
		// A group ends where the keywords differ, so that its spans contain no message with other
		// keywords.
		if last := len(p.groups) - 1; last < 0 || p.groups[last].keywords != to.Keywords && withWords {
			p.groups = append(p.groups, keywordGroup{keywords: to.Keywords})
		}
		p.groups[len(p.groups)-1].spans.Add(index, e.UID)
	}
	return p, nil
}

// commitFlags commits the change, and returns the folder's mod-sequence before and after it.
func (v *View) commitFlags(ctx context.Context, p *flagPlan, since uint64, withWords bool, most int) (was, modseq uint64, err error) {
	sh := v.shared
	// Readers of the log read the messages too, so an additional message does no harm.
	log := snapshot.FormatRanges(snapshot.CoarsenRanges(p.touched.Ranges(), most))
	err = v.store.DB.Write(ctx, v.row.Mailbox, &db.Mutation{
		Guard: func(b *db.Batch) {
			b.Queue(mailbox.LockUsage(v.row.Mailbox))
			b.Queue(totals{unseen: p.unseen}.removeStatement(sh.id, since, modSeqStep(log))).One(&was, &modseq).OrFail(errStale)
		},
		Apply: func(b *db.Batch) {
			for _, g := range p.groups {
				for piece := range uidBatches(g.spans.Spans) {
					args := []any{sh.id, int64(p.keep), int64(p.add), int64(modseq)}
					if withWords {
						args = append(args, sh.keywords.FormatSet(g.keywords))
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

// adoptFlags updates the session's messages to their new state, and returns the changes to report.
// Sync does not report them again: if others expunge the messages meanwhile, they stay in the
// session's numbering with the flags that its client knows.
func (v *View) adoptFlags(before, now *snapshot.Snapshot, uids []uint32, p *flagPlan, words *keywordChange) []FlagChange {
	inStep := v.snap == before
	if inStep {
		v.snap = now
	}
	var known []snapshot.Entry
	changed := make([]FlagChange, 0, len(p.requested))
	asked := p.requested
	for index, e := range v.snap.EachOf(uids) {
		for len(asked) > 0 && asked[0].UID < e.UID {
			asked = asked[1:]
		}
		if len(asked) == 0 {
			break
		}
		if asked[0].UID != e.UID {
			continue
		}
		c := v.flagChange(index, asked[0])
		if !inStep {
			to, err := words.apply(e.Keywords)
			c.ChangedByOthers = err != nil || to != asked[0].Keywords || to == snapshot.OverflowKeywords || e.Flags&p.keep|p.add != asked[0].Flags
			known = append(known, asked[0])
		}
		changed = append(changed, c)
	}
	if !inStep {
		v.snap = v.snap.Apply(known, nil)
	}
	return changed
}
