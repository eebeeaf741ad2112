// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"crypto/ed25519"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/heaptest"
)

const (
	signedAll = "DKIM-Signature: v=1; a=rsa-sha256; c=simple/simple; d=a.test; s=s; h=from:a:to; bh=AAAA; b=AAAA\r\n" +
		"DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=a.test; s=s; h=from:a:to; bh=AAAA; b=AAAA\r\nFrom: a@a.test\r\n"
	sealedOnce = "ARC-Seal: i=1; a=rsa-sha256; cv=none; d=a.test; s=s; b=AAAA\r\nARC-Authentication-Results: i=1; a.test; none\r\n" +
		"ARC-Message-Signature: i=1; a=rsa-sha256; d=a.test; s=s; h=from:a; bh=AAAA; b=AAAA\r\nFrom: a@a.test\r\n"
)

// Verifying and signing a message needs little memory besides its header, which may have 1 MiB.
func TestMemoryOfTrial(t *testing.T) {
	j := &Verifier{Now: time.Now}
	trial := func(r io.Reader) any {
		header := make([]byte, maxHeader)
		n, err := io.ReadFull(r, header)
		if err != nil {
			t.Error(err)
		}
		trial := j.Begin(header[:headerOf(header[:n])])
		_, err = io.Copy(trial, r)
		if err != nil {
			t.Error(err)
		}
		return trial
	}
	heaptest.Check(t, trial,
		heaptest.Input{Head: signedAll + "\r\n", Unit: " "},
		heaptest.Input{Head: signedAll + "\r\n", Unit: "\n"},
		heaptest.Input{Head: signedAll, Unit: "a:\n"},
		heaptest.Input{Head: "", Unit: "DKIM-Signature: v=1;\n"},
		heaptest.Input{Head: sealedOnce, Unit: "ARC-Seal:;\n"},
		heaptest.Input{Head: sealedOnce, Unit: "("})
}

func TestMemoryOfSigner(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	s := &Signer{Domain: "a.test", Keys: []Key{{"a", key}, {"b", key}}, Now: time.Now}
	sign := func(r io.Reader) any {
		out, err := s.SignReader(r)
		if err != nil && !errors.Is(err, ErrHeaderTooBig) {
			t.Error(err)
		}
		return out
	}
	heaptest.Check(t, sign,
		heaptest.Input{Head: "From: a@a.test\r\n\r\n", Unit: " "},
		heaptest.Input{Head: "From: a@a.test\r\n", Unit: "To:\n"},
		heaptest.Input{Head: "From: a@a.test\r\nSubject:", Unit: "\r\n "})
}

// headerOf returns the length of the header at the start of a message.
func headerOf(msg []byte) int {
	if end := headerEnd(msg); end >= 0 {
		return end
	}
	return len(msg)
}

// A signature over more fields than are indexed doesn't verify, and no message is signed with only
// some of its fields.
func TestTooManyFields(t *testing.T) {
	var many []byte
	for range maxFieldsPerName + 1 {
		many = append(many, "a: b\r\n"...)
	}
	j := &Verifier{Now: time.Now}
	few := j.Begin([]byte(signedAll + sealedOnce + string(many[:len("a: b\r\n")])))
	if few.signatures[0].Result != "" || few.arc.Result != "" {
		t.Errorf("few fields: %s, %s", few.signatures[0].Reason, few.arc.Reason)
	}
	trial := j.Begin([]byte(signedAll + sealedOnce + string(many)))
	if trial.signatures[0].Result != PermError || trial.signatures[1].Result != PermError || trial.arc.Result != Fail {
		t.Errorf("many fields: %q, %q", trial.signatures[0].Result, trial.arc.Result)
	}
	s := &Signer{Domain: "a.test", Keys: []Key{{"a", ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))}}}
	for range maxSignedFields + 1 {
		many = append(many, "To: b@b.test\r\n"...)
	}
	if _, err := s.Sign(append([]byte("From: a@a.test\r\n"), many...)); !errors.Is(err, ErrHeaderTooBig) {
		t.Errorf("signing: %v", err)
	}
}
