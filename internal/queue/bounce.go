// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/bounce"
)

// classifyFailure returns the bounce classification of a final failure. A host's final refusal
// during the SMTP transaction is always Permanent. The reason tells whether the address is at
// fault.
func classifyFailure(stage string, expired bool, s *StatusChange) bounce.Classification {
	if expired {
		return bounce.Classification{Type: bounce.Transient, Subtype: bounce.Expired, Category: bounce.ByInfrastructure}
	}
	v := s.classify(stage)
	v.Type = bounce.Permanent
	return v
}

// classifyReport returns the bounce classification of a report, unless its parser already set one.
func classifyReport(s *StatusChange, said bounce.Classification) bounce.Classification {
	if said.Type != "" {
		return said
	}
	return s.classify("")
}

func (s *StatusChange) classify(stage string) bounce.Classification {
	return bounce.Classify(bounce.Reply{Stage: stage, Code: s.Code, Enhanced: s.Enhanced, Text: s.Reply})
}

func newBounceClassification(v bounce.Classification) *BounceClassification {
	return &BounceClassification{Type: v.Type, Subtype: v.Subtype, Category: v.Category}
}

// diagnostic returns the last reply in one line.
func (s *StatusChange) diagnostic() string {
	code := ""
	if s.Code != 0 {
		code = fmt.Sprint(s.Code)
	}
	return strings.Join(strings.Fields(code+" "+s.Enhanced+" "+s.Reply), " ")
}
