// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"context"
	"log/slog"
	"sync"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/summary"
)

// builtinThreshold is from how many points on our own filter calls a message spam.
// It refuses nothing.
const builtinThreshold = 5

// BuiltinFilter is our own filter.
type BuiltinFilter struct {
	Bayes      *Bayes      // nil: nothing learns
	BlockLists *BlockLists // of bad hosts; nil for none
	Log        *slog.Logger
}

// Check weighs a message for each of its recipients. Trouble means that some
// evidence is missing.
func (w *BuiltinFilter) Check(ctx context.Context, m *Message) []summary.SpamResult {
	common := authReasons(&m.CheckResults)
	if w.BlockLists != nil {
		common = append(common, w.BlockLists.Lookup(ctx, m.Client)...)
	}
	words := sync.OnceValue(func() []uint64 {
		all, err := Tokens(ctx, m)
		if err != nil {
			w.Log.Warn("a message could not be read by the spam filter", "message", m.ID, "error", err)
		}
		return all
	})
	known := map[db.ID]summary.SpamResult{}
	all := make([]summary.SpamResult, len(m.To))
	for n, account := range m.Accounts {
		o, ok := known[account]
		if !ok {
			o = summary.SpamResult{Threshold: builtinThreshold, Reasons: append([]summary.SpamReason(nil), common...)}
			if w.Bayes != nil {
				r, err := w.Bayes.Score(ctx, account, words)
				if err != nil {
					w.Log.Warn("what an account taught the spam filter could not be read", "account", account, "error", err)
				}
				o.Reasons = append(o.Reasons, r...)
			}
			for _, r := range o.Reasons {
				o.Score += r.Points
			}
			sortReasons(o.Reasons)
			if o.Score >= builtinThreshold {
				o.Action = summary.ActionJunk
			}
			known[account] = o
		}
		all[n] = o
	}
	return all
}

// authReasons weighs who sent it. Much honest mail has no good results, and spam
// often has: by themselves they never make a message spam.
func authReasons(v *summary.CheckResults) (all []summary.SpamReason) {
	add := func(name string, points float64) {
		all = append(all, summary.SpamReason{Name: name, Points: points})
	}
	switch v.SPF {
	case "fail":
		add("SPF_FAIL", 1.5)
	case "softfail":
		add("SPF_SOFTFAIL", 0.5)
	}
	if v.DKIM == "fail" {
		add("DKIM_FAIL", 0.5)
	}
	switch v.DMARC {
	case "pass":
		add("DMARC_PASS", -0.5)
	case "fail":
		add("DMARC_FAIL", 1.5)
	case "none", "":
		if v.SPF != "pass" && v.DKIM != "pass" {
			add("NOBODY_SPEAKS_FOR_IT", 0.5)
		}
	}
	return all
}
