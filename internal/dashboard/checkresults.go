// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
)

// checkExplanation is a check result of a received message, with an explanation.
type checkExplanation struct{ Name, Value, Means string }

// explainChecks explains the check results of a message.
func explainChecks(v summary.CheckResults) []checkExplanation {
	var all []checkExplanation
	if v.Author != "" {
		all = append(all, checkExplanation{"Author", "unclear", cmp.Or(explainAuthor(string(v.Author)), "Mail readers may show different authors.")})
	}
	return append(all, []checkExplanation{
		{"SPF", v.SPF, explainValue(v.SPF, map[string]string{
			"pass":      "The host that brought it may send for the domain of the return address.",
			"fail":      "The domain of the return address says that this host may not send for it. Mail that was forwarded fails like this, too.",
			"softfail":  "The domain of the return address says that this host is probably none of its own.",
			"neutral":   "The domain of the return address does not say who may send for it.",
			"none":      "The domain of the return address publishes nothing about who may send for it, or the message came from here.",
			"permerror": "What the domain of the return address publishes can't be read.",
		})},
		{"DKIM", v.DKIM, explainValue(v.DKIM, map[string]string{
			"pass":      "It carries a signature that holds: nobody changed it on its way.",
			"fail":      "None of its signatures holds: it was changed on its way, or somebody made them up.",
			"neutral":   "Its signature does not hold, but the domain is only trying it out.",
			"policy":    "Its signature covers only a part of it, which is worth nothing.",
			"none":      "It is not signed.",
			"permerror": "Its signatures can't be used.",
		})},
		{"DMARC", v.DMARC, explainValue(v.DMARC, map[string]string{
			"pass":      "It is from the domain that it shows as its author's.",
			"fail":      "Nothing shows that it is from the domain that it names as its author's. That domain's wish for such mail was followed as far as your settings let it.",
			"none":      "The domain of its author publishes no policy, or the message came from here.",
			"permerror": "Its author can't be told, so nothing can be shown.",
		})},
		{"Spam filter", v.Spam, explainValue(v.Spam, map[string]string{
			"ham":  "The filter did not call it spam.",
			"spam": "The filter calls it spam.",
			"none": "The filter was not asked.",
		})},
	}...)
}

// explainAuthor explains why the author of a message is unclear. It returns "" for an unknown
// reason, for example from another release.
func explainAuthor(doubt string) string {
	return map[message.AuthorProblem]string{
		message.NoFrom:      "The message has no From field, so it names no author.",
		message.ManyFrom:    "The message has several From fields. Mail readers may show different ones.",
		message.UnclearFrom: "Mail readers may read its From field differently, or take the name for the address.",
		message.NoAuthor:    "Its From field has no address with a full domain name.",
		message.ManyDomains: "Its From field names authors of different domains.",
		message.OtherName:   "The name in its From field shows another address than the one it was sent from.",
	}[message.AuthorProblem(doubt)]
}

func explainValue(value string, words map[string]string) string {
	if value == "temperror" {
		return "The DNS did not answer when it arrived, so this is not known."
	}
	return words[value]
}

// spamReason is a rule that contributed to a spam score.
type spamReason struct{ Name, Points, Means string }

// spamReasons parses the reasons of a spam filter. It explains those of the built-in filter; rspamd
// documents its own.
func spamReasons(reasons string) (all []spamReason) {
	for word := range strings.FieldsSeq(reasons) {
		w := spamReason{}
		w.Name, w.Points, _ = strings.Cut(word, "=")
		w.Points = cmp.Or(w.Points, "0")
		if n, err := strconv.ParseFloat(w.Points, 64); err == nil && n > 0 {
			w.Points = "+" + w.Points
		}
		if zone, listed := strings.CutPrefix(w.Name, "DNSBL_"); listed {
			w.Means = "The host that brought it is on the block list " + zone + "."
		} else {
			w.Means = explainSpamReason(w.Name)
		}
		all = append(all, w)
	}
	return all
}

// explainSpamReason explains a rule of the built-in filter (package spam), or returns "" for
// others.
func explainSpamReason(name string) string {
	return map[string]string{
		"SPF_FAIL":             "SPF fails.",
		"SPF_SOFTFAIL":         "SPF says probably not.",
		"DKIM_FAIL":            "No signature holds.",
		"DMARC_PASS":           "It is from its author's domain.",
		"DMARC_FAIL":           "Nothing shows that it is from its author's domain.",
		"NOBODY_SPEAKS_FOR_IT": "Neither SPF nor a signature speaks for it.",
		"BAYES_99":             "By what you moved into Junk before, it is almost surely spam.",
		"BAYES_95":             "By what you moved into Junk before, it is very likely spam.",
		"BAYES_80":             "By what you moved into Junk before, it is likely spam.",
		"BAYES_50":             "What you sorted before tells nothing about it.",
		"BAYES_20":             "By what you sorted before, it is likely wanted.",
		"BAYES_01":             "By what you sorted before, it is almost surely wanted.",
	}[name]
}
