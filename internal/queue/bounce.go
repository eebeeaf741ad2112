// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/bounce"
)

// classifyFailure says what kind of bounce a final failure is. What the host itself
// refuses for good while we speak to it is Permanent, whatever the reason; the
// reason says whether the address is to blame.
func classifyFailure(stage string, expired bool, s *statusData) bounce.Classification {
	if expired {
		return bounce.Classification{Type: bounce.Transient, Subtype: bounce.Expired, Category: bounce.ByInfrastructure}
	}
	v := s.classify(stage)
	v.Type = bounce.Permanent
	return v
}

// classifyReport says what kind of bounce a report speaks of, if whoever read
// it did not.
func classifyReport(s *statusData, said bounce.Classification) bounce.Classification {
	if said.Type != "" {
		return said
	}
	return s.classify("")
}

func (s *statusData) classify(stage string) bounce.Classification {
	return bounce.Classify(bounce.Reply{Stage: stage, Code: s.Code, Enhanced: s.Enhanced, Text: s.Reply})
}

func newBounceKind(v bounce.Classification) *BounceKind {
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
