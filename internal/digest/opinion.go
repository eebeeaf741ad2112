// SPDX-License-Identifier: Apache-2.0

package digest

import (
	"math"
	"strconv"
	"strings"
)

// Action is what is to become of a message, as a spam filter sees it.
type Action int

// The actions, from mild to hard.
const (
	Accept Action = iota // like any other
	Junk                 // in Junk
	Defer                // refused for now
	Reject               // refused
)

// Opinion is what a spam filter thinks of a message.
type Opinion struct {
	Score, Threshold float64 // from the threshold on it is spam
	// Lenient and Strict are the thresholds for those who want less, or more, to be
	// called spam; 0: twice and half of Threshold.
	Lenient, Strict float64
	Action          Action
	Reasons         []Reason // what counts most comes first
	Text            string   // for the sender, with Defer and Reject; "" for none
}

// Reason is something that counts for or against a message.
type Reason struct {
	Name   string // of letters, digits, "_", "." and "-"
	Points float64
}

// Most of the reasons that are told.
const maxReasons = 30

// Reasoned lists the reasons: "DNSBL=3 BAYES_HAM=-2", those without points by
// their name alone.
func (o *Opinion) Reasoned() string {
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
			b.WriteString(number(r.Points))
		}
	}
	return b.String()
}

// Spam reports whether it is thought to be spam.
func (o *Opinion) Spam() bool { return o.Action == Junk || o.Action == Reject }

// AppendFields appends the header fields that tell people and their programs of
// the opinion.
func (o *Opinion) AppendFields(dst []byte) []byte {
	word := "No"
	if o.Spam() {
		word = "Yes"
	}
	dst = append(dst, "X-Spam-Score: "+number(o.Score)+"\r\nX-Spam-Status: "+word+", score="+number(o.Score)+" required="+number(o.Threshold)...)
	for reason := range strings.FieldsSeq(o.Reasoned()) {
		dst = append(append(dst, "\r\n\t"...), reason...)
	}
	return append(dst, "\r\n"...)
}

// Into adds the opinion to verdicts.
func (o *Opinion) Into(v Verdicts) Verdicts {
	v.Spam, v.SpamScore, v.SpamReasons = Ham, rounded(o.Score), o.Reasoned()
	if o.Spam() {
		v.Spam = Spam
	}
	return v
}

func rounded(f float64) float64 { return math.Round(f*100) / 100 }

func number(f float64) string { return strconv.FormatFloat(rounded(f), 'f', -1, 64) }
