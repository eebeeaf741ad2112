// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"math"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/apijson"
)

// SpamAction is what a spam filter wants done with a message.
type SpamAction int

// Actions, from lenient to strict.
const (
	ActionAccept SpamAction = iota // deliver normally
	ActionJunk                     // file in Junk
	ActionDefer                    // reject temporarily
	ActionReject                   // reject
)

// SpamResult is the result of a spam filter for a message.
type SpamResult struct {
	Score, Threshold float64 // spam from the threshold on
	// LenientThreshold and StrictThreshold are the thresholds for the lenient and strict settings;
	// 0 means twice and half of Threshold.
	LenientThreshold, StrictThreshold float64
	Action                            SpamAction
	Reasons                           []SpamReason // most significant first
	Reply                             string       // SMTP reply text with ActionDefer and ActionReject; "" for none
}

// SpamReason is a rule that counts for or against a message.
type SpamReason struct {
	Name   string // of letters, digits, "_", "." and "-"
	Points float64
}

// maxReasons is the maximum number of reasons in lists.
const maxReasons = 30

// ReasonList lists the reasons, as in "DNSBL=3 BAYES_HAM=-2". Reasons without points have only
// their name.
func (o *SpamResult) ReasonList() string {
	var b strings.Builder
	for n, r := range o.Reasons {
		if n == maxReasons {
			break
		}
		if n > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(r.Name)
		if r.Points != 0 {
			b.WriteByte('=')
			b.WriteString(formatPoints(r.Points))
		}
	}
	return b.String()
}

// IsSpam reports whether the filter considers the message spam.
func (o *SpamResult) IsSpam() bool { return o.Action == ActionJunk || o.Action == ActionReject }

// AppendHeader appends the header fields with the result, for people and mail programs.
func (o *SpamResult) AppendHeader(dst []byte) []byte {
	word := "No"
	if o.IsSpam() {
		word = "Yes"
	}
	dst = append(dst, "X-Spam-Score: "+formatPoints(o.Score)+"\r\nX-Spam-Status: "+word+", score="+formatPoints(o.Score)+" required="+formatPoints(o.Threshold)...)
	for reason := range strings.FieldsSeq(o.ReasonList()) {
		dst = append(append(dst, "\r\n\t"...), reason...)
	}
	return append(dst, "\r\n"...)
}

// AddTo adds the result to v.
func (o *SpamResult) AddTo(v CheckResults) CheckResults {
	v.Spam, v.SpamScore, v.SpamReasons = Ham, apijson.NullFloat(roundPoints(o.Score)), apijson.NullString(o.ReasonList())
	if o.IsSpam() {
		v.Spam = Spam
	}
	return v
}

func roundPoints(f float64) float64 { return math.Round(f*100) / 100 }

func formatPoints(f float64) string { return strconv.FormatFloat(roundPoints(f), 'f', -1, 64) }
