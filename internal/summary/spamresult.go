// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"math"
	"strconv"
	"strings"
)

// SpamAction is what is to become of a message, as a spam filter sees it.
type SpamAction int

// The actions, from mild to hard.
const (
	ActionAccept SpamAction = iota // like any other
	ActionJunk                     // in ActionJunk
	ActionDefer                    // refused for now
	ActionReject                   // refused
)

// SpamResult is what a spam filter thinks of a message.
type SpamResult struct {
	Score, Threshold float64 // from the threshold on it is spam
	// LenientThreshold and Strict are the thresholds for those who want less, or more, to be
	// called spam; 0: twice and half of Threshold.
	LenientThreshold, StrictThreshold float64
	Action                            SpamAction
	Reasons                           []SpamReason // what counts most comes first
	Reply                             string       // for the sender, with ActionDefer and ActionReject; "" for none
}

// SpamReason is something that counts for or against a message.
type SpamReason struct {
	Name   string // of letters, digits, "_", "." and "-"
	Points float64
}

// Most of the reasons that are told.
const maxReasons = 30

// ReasonList lists the reasons: "DNSBL=3 BAYES_HAM=-2", those without points by
// their name alone.
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

// IsSpam reports whether it is thought to be spam.
func (o *SpamResult) IsSpam() bool { return o.Action == ActionJunk || o.Action == ActionReject }

// AppendHeader appends the header fields that tell people and their programs of
// the opinion.
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

// AddTo adds the opinion to verdicts.
func (o *SpamResult) AddTo(v CheckResults) CheckResults {
	v.Spam, v.SpamScore, v.SpamReasons = Ham, roundPoints(o.Score), o.ReasonList()
	if o.IsSpam() {
		v.Spam = Spam
	}
	return v
}

func roundPoints(f float64) float64 { return math.Round(f*100) / 100 }

func formatPoints(f float64) string { return strconv.FormatFloat(roundPoints(f), 'f', -1, 64) }
