// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/apijson"
)

// CheckResults are the results of verification and spam filter for a received message.
type CheckResults struct {
	SPF   string `json:"spf" enum:"none,neutral,pass,fail,softfail,temperror,permerror" doc:"Whether the sender's host may send for the domain of MAIL FROM (RFC 7208)." example:"pass"`
	DKIM  string `json:"dkim" enum:"none,neutral,pass,fail,policy,temperror,permerror" doc:"What the message's signatures are worth (RFC 6376)." example:"pass"`
	DMARC string `json:"dmarc" enum:"none,pass,fail,temperror,permerror" doc:"Whether one of the two speaks for the author's domain (RFC 9989)." example:"pass"`
	// Author is a message.AuthorProblem.
	Author apijson.NullString `json:"author" enum:"no_from,many_from,unclear_from,no_author,many_domains,other_name" doc:"Why the author can't be told, null if he can: no From field, several, one that mail readers read differently, no address with a full domain name, authors of different domains, or a name that shows another address than the author's. The message is in Junk then, unless the recipient's domain turns dmarc_enforcement off." example:"other_name"`
	Spam   string             `json:"spam" enum:"none,ham,spam" doc:"What the spam filter thinks; none if it was not asked." example:"ham"`
	// SpamScore and SpamReasons come from the filter, which may be the operator's.
	SpamScore   apijson.NullFloat  `json:"spam_score" doc:"How many points speak for spam; null if there are none, or the filter was not asked." example:"1.5"`
	SpamReasons apijson.NullString `json:"spam_reasons" doc:"What counted, parted by spaces, each with its points; what counted most comes first." example:"DNSBL=3 BAYES_HAM=-1.5"`
}

// Values of CheckResults.Spam for a checked message.
const (
	Ham  = "ham"
	Spam = "spam"
)

func (v *CheckResults) eachResult(f func(name string, value *string)) {
	f("spf", &v.SPF)
	f("dkim", &v.DKIM)
	f("dmarc", &v.DMARC)
	f("spam", &v.Spam)
}

// WithDefaults returns v with "none" for missing results.
func (v CheckResults) WithDefaults() CheckResults {
	v.eachResult(func(_ string, value *string) {
		if *value == "" {
			*value = "none"
		}
	})
	return v
}

// String returns the stored form: "spf=pass dkim=fail"; "" if all results are none.
func (v CheckResults) String() string {
	var said []string
	v.eachResult(func(name string, value *string) {
		if *value != "" && *value != "none" {
			said = append(said, name+"="+*value)
		}
	})
	if v.Author != "" {
		said = append(said, authorPrefix+string(v.Author))
	}
	if v.SpamScore != 0 {
		said = append(said, scorePrefix+formatPoints(float64(v.SpamScore)))
	}
	for reason := range strings.FieldsSeq(string(v.SpamReasons)) {
		said = append(said, reasonPrefix+reason)
	}
	return strings.Join(said, " ")
}

// Prefixes of the author's problem, and of the spam score and reasons, in the stored form.
const (
	scorePrefix  = "score="
	reasonPrefix = "by="
	authorPrefix = "author="
)

// ParseCheckResults parses the output of String.
func ParseCheckResults(s string) CheckResults {
	var v CheckResults
	v.eachResult(func(name string, value *string) {
		for _, word := range strings.Fields(s) {
			if said, ok := strings.CutPrefix(word, name+"="); ok {
				*value = said
			}
		}
	})
	var reasons []string
	for _, word := range strings.Fields(s) {
		if text, ok := strings.CutPrefix(word, scorePrefix); ok {
			points, _ := strconv.ParseFloat(text, 64) // written by String
			v.SpamScore = apijson.NullFloat(points)
		} else if doubt, ok := strings.CutPrefix(word, authorPrefix); ok {
			v.Author = apijson.NullString(doubt)
		} else if reason, ok := strings.CutPrefix(word, reasonPrefix); ok {
			reasons = append(reasons, reason)
		}
	}
	v.SpamReasons = apijson.NullString(strings.Join(reasons, " "))
	return v.WithDefaults()
}
