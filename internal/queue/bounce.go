// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/bounce"
)

// bounceOf says what kind of bounce a final failure is. What the host itself
// refuses for good while we speak to it is Permanent, whatever the reason; the
// reason says whether the address is to blame.
func bounceOf(stage string, expired bool, s *statusData) bounce.Verdict {
	if expired {
		return bounce.Verdict{Type: bounce.Transient, Subtype: bounce.Expired, Category: bounce.ByInfrastructure}
	}
	v := s.classify(stage)
	v.Type = bounce.Permanent
	return v
}

// bounceOfReport says what kind of bounce a report speaks of, if whoever read
// it did not.
func bounceOfReport(s *statusData, said bounce.Verdict) bounce.Verdict {
	if said.Type != "" {
		return said
	}
	return s.classify("")
}

func (s *statusData) classify(stage string) bounce.Verdict {
	return bounce.Classify(bounce.Answer{Stage: stage, Code: s.Code, Enhanced: s.Enhanced, Text: s.Reply})
}

func kindOf(v bounce.Verdict) *BounceKind {
	return &BounceKind{Type: v.Type, Subtype: v.Subtype, Category: v.Category}
}

// diagnostic is the last answer in one line.
func (s *statusData) diagnostic() string {
	code := ""
	if s.Code != 0 {
		code = fmt.Sprint(s.Code)
	}
	return strings.Join(strings.Fields(code+" "+s.Enhanced+" "+s.Reply), " ")
}
