// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"context"
	"log/slog"
	"sync"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/summary"
)

// builtinThreshold is the score, in points, from which the built-in filter considers a message
// spam. The filter rejects nothing.
const builtinThreshold = 5

// BuiltinFilter is the built-in spam filter.
type BuiltinFilter struct {
	Bayes      *Bayes      // nil: no training
	BlockLists *BlockLists // nil: none
	Log        *slog.Logger
}

// Check returns a result for each recipient of a message. On errors it uses the remaining evidence.
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

// authReasons returns the points for authentication results. Much legitimate mail has no good
// results, and spam often has. These points alone never make a message spam.
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
