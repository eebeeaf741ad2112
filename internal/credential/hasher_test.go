// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// A hash made by the argon2 reference program: "password", salt "somesalt".
const known = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"

func TestHashAndVerify(t *testing.T) {
	h, ctx := NewHasher(), t.Context()
	phc, err := h.Hash(ctx, "Passw0rd!ü")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(phc, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("stored as %s", phc)
	}
	for password, want := range map[string]bool{
		"Passw0rd!ü": true, "Passw0rd!u\u0308": true, "Passw0rd!u": false, "": false, strings.Repeat("x", 1<<20): false,
	} {
		if ok, err := h.Verify(ctx, phc, password); err != nil || ok != want {
			t.Errorf("%.12q: %v, %v", password, ok, err)
		}
	}
	if ok, err := h.Verify(ctx, known, "password"); err != nil || !ok {
		t.Errorf("another program's hash: %v, %v", ok, err)
	}
	if again, _ := h.Hash(ctx, "Passw0rd!ü"); again == phc {
		t.Error("the salt repeats")
	}
	if err := h.Dummy(ctx, "Passw0rd!"); err != nil {
		t.Error(err)
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	h := NewHasher()
	for range cap(h.slots) {
		h.slots <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Hash(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("Hash: %v", err)
	}
	if _, err := h.Verify(ctx, known, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("Verify: %v", err)
	}
	if err := h.Dummy(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("Dummy: %v", err)
	}
	if _, err := NewCache(h).Verify(ctx, 1, 1, known, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("Cache.Verify: %v", err)
	}
}

var hostile = []string{
	"", "$", "$$$$$", "plain",
	strings.Replace(known, "argon2id", "argon2i", 1),
	strings.Replace(known, "v=19", "v=16", 1),
	strings.Replace(known, "m=65536", "m=4194304", 1),
	strings.Replace(known, "m=65536", "m=4294967296", 1),
	strings.Replace(known, "m=65536", "m=7", 1),
	strings.Replace(known, "m=65536", "m=-1", 1),
	strings.Replace(known, "t=2", "t=1000000", 1),
	strings.Replace(known, "t=2", "t=0", 1),
	strings.Replace(known, "p=1", "p=255", 1),
	strings.Replace(known, "p=1", "p=0", 1),
	strings.Replace(known, "t=2,p=1", "p=1,t=2", 1),
	strings.Replace(known, "c29tZXNhbHQ", "", 1),
	strings.Replace(known, "c29tZXNhbHQ", "!!", 1),
	known[:strings.LastIndex(known, "$")+1],
	known[:strings.LastIndex(known, "$")+5],
	known + "$",
	known + strings.Repeat("A", 1000),
}

func TestDamagedHashes(t *testing.T) {
	h := NewHasher()
	for _, phc := range hostile {
		if ok, err := h.Verify(t.Context(), phc, "password"); ok || err == nil {
			t.Errorf("%.80q was taken", phc)
		}
	}
}

func FuzzParsePHC(f *testing.F) {
	for _, s := range append(hostile, known) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := parsePHC(s)
		if err != nil {
			return
		}
		if h.memory > maxMemory || h.time > maxTime || h.threads > maxThreads || h.memory == 0 || h.time == 0 || h.threads == 0 {
			t.Fatalf("out of bounds: %q", s)
		}
		if _, err := parsePHC(h.String()); err != nil {
			t.Fatalf("%q does not parse again: %v", s, err)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	h := NewHasher()
	phc, err := h.Hash(b.Context(), "Passw0rd!")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if ok, _ := h.Verify(b.Context(), phc, "Passw0rd!"); !ok {
			b.Fatal("refused")
		}
	}
}
