// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// sealPurpose is the purpose under which webhook secrets are sealed.
const sealPurpose = "webhook"

// maxOldSecrets is the maximum of replaced secrets that still sign, however often a secret is
// rotated; the newest stay.
const maxOldSecrets = 4

// secrets are the signing secrets of a webhook, as they are sealed.
type secrets struct {
	Secret string      `json:"secret"`
	Old    []oldSecret `json:"old,omitempty"` // newest first
}

type oldSecret struct {
	Secret     string `json:"secret"`
	ValidUntil int64  `json:"until"` // microseconds
}

func (h *Service) sealSecrets(s secrets) []byte {
	text, _ := json.Marshal(s) // can't fail for strings and numbers
	return h.o.Key.Seal(sealPurpose, text)
}

func (h *Service) openSecrets(sealed []byte) (s secrets, err error) {
	text, err := h.o.Key.Open(sealPurpose, sealed)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("a webhook's secrets: %w", err)
	}
	return s, nil
}

// rotate replaces the current secret by a new one. The old one keeps signing until the given time.
func (s *secrets) rotate(now, until time.Time) {
	s.Old = slices.DeleteFunc(s.Old, func(o oldSecret) bool { return o.ValidUntil <= db.Micros(now) })
	if until.After(now) {
		s.Old = slices.Insert(s.Old, 0, oldSecret{s.Secret, db.Micros(until)})
	} else {
		s.Old = nil // if the current one ends at once, so do the older ones
	}
	s.Old = s.Old[:min(len(s.Old), maxOldSecrets)]
	s.Secret = NewSecret()
}

// oldUntil returns when the last old secret stops signing.
func (s *secrets) oldUntil() (last int64) {
	for _, o := range s.Old {
		last = max(last, o.ValidUntil)
	}
	return last
}

// activeOld returns the old secrets that still sign.
func (s *secrets) activeOld(now time.Time) (old []string) {
	for _, o := range s.Old {
		if o.ValidUntil > db.Micros(now) {
			old = append(old, o.Secret)
		}
	}
	return old
}
