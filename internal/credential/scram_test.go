// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/xdg-go/scram"
)

func testScram() *SCRAM {
	return &SCRAM{Hasher: NewHasher(), Key: bytes.Repeat([]byte{7}, 32), Offered: true}
}

// The example of RFC 7677 §3.
func TestScramExample(t *testing.T) {
	salt, _ := base64.StdEncoding.DecodeString("W22ZaJ0SNY7soEsUEjb6gQ==")
	f := scram.KeyFactors{Salt: string(salt), Iters: 4096}
	stored, err := newVerifier("pencil", f)
	if err != nil || !strings.HasPrefix(stored, "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$") {
		t.Fatalf("stored %q, %v", stored, err)
	}
	e := &SCRAMExchange{clientFirst: "n,,n=user,r=rOprNGfwEbeRWgbNEkqO", nonce: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
		factors: func(string) scram.KeyFactors { return f }}
	if err := e.start(); err != nil || e.User != "user" || e.AuthzID != "" {
		t.Fatalf("%+v, %v", e, err)
	}
	if want := "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"; e.Challenge != want {
		t.Errorf("challenge %s", e.Challenge)
	}
	final := "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
	if err := e.CheckFinalWithoutProof(final); err != nil {
		t.Fatal(err)
	}
	answer, ok := e.Verify(final, stored)
	if want := "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="; !ok || answer != want {
		t.Errorf("answered %q, %v", answer, ok)
	}
}

// converse runs an exchange with the library's client, and reports whether client and server proved
// to each other that they know the password.
func converse(t *testing.T, s *SCRAM, user, password, stored string) bool {
	t.Helper()
	client, err := scram.SHA256.NewClient(user, password, "")
	if err != nil {
		t.Fatal(err)
	}
	c := client.NewConversation()
	first, err := c.Step("")
	if err != nil {
		t.Fatal(err)
	}
	e, err := s.Begin(first)
	if err != nil {
		t.Fatal(err)
	}
	final, err := c.Step(e.Challenge)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.CheckFinalWithoutProof(final); err != nil {
		t.Fatal(err)
	}
	answer, ok := e.Verify(final, stored)
	if !ok {
		return false
	}
	if _, err := c.Step(answer); err != nil || !c.Valid() {
		t.Errorf("the client does not believe us: %v", err)
	}
	return true
}

func TestScram(t *testing.T) {
	s, ctx := testScram(), t.Context()
	stored, err := s.Verifiers(ctx, Requester{}, "Ann@Example.com", "Passw0rd!")
	if err != nil || strings.Count(stored, "$") != 2 {
		t.Fatalf("stored %q, %v", stored, err)
	}
	other, _ := s.Verifiers(ctx, Requester{}, "ann@example.com", "one-of-a-phone", "oneofaphone")
	damaged := "SCRAM-SHA-256 $ " + stored[:len(stored)-50] + " " + strings.Replace(stored, ":", "", 2) + " " + stored[:strings.LastIndexByte(stored, ':')] + ":!"
	for _, c := range []struct {
		user, password, stored string
		want                   bool
	}{
		{"ann@example.com", "Passw0rd!", stored, true},
		{"ANN@EXAMPLE.COM", "Passw0rd!", stored, true},
		{"ann@example.com", "Passw0rd!", damaged + " " + stored, true},
		{"ann@example.com", "oneofaphone", stored + " " + other, true},
		{"ann@example.com", "one-of-a-phone", other, true},
		{"ann@example.com", "Passw0rd", stored, false},
		{"ann@example.com", "", stored, false},
		{"ann@example.com", "Passw0rd!", "", false},
		{"ann@example.com", "Passw0rd!", damaged, false},
		{"bob@example.com", "Passw0rd!", stored, false},
	} {
		if got := converse(t, s, c.user, c.password, c.stored); got != c.want {
			t.Errorf("%s with %q: %v", c.user, c.password, got)
		}
	}
	if s.NeedsVerifiers("ann@EXAMPLE.com", stored) || !s.NeedsVerifiers("bob@example.com", stored) || !s.NeedsVerifiers("ann@example.com", "") {
		t.Error("does not know what is to be made")
	}
	elsewhere := testScram()
	elsewhere.Key = []byte("another")
	if !elsewhere.NeedsVerifiers("ann@example.com", stored) || converse(t, elsewhere, "ann@example.com", "Passw0rd!", stored) {
		t.Error("what another key made counts")
	}
	if v, err := (*SCRAM)(nil).Verifiers(ctx, Requester{}, "ann@example.com", "Passw0rd!"); v != "" || err != nil {
		t.Errorf("off, and stored %q, %v", v, err)
	}
	if (*SCRAM)(nil).IsOffered() || (*SCRAM)(nil).NeedsVerifiers("ann@example.com", "") || (&SCRAM{}).IsOffered() || !s.IsOffered() {
		t.Error("does not know what is offered")
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	s.Hasher.slots = newSlots(1)
	if _, err := s.Hasher.Acquire(t.Context(), Requester{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Verifiers(ctx, Requester{}, "ann@example.com", "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("without a turn: %v", err)
	}
}

// Clients prepare a password with SASLprep, or send it in NFC.
func TestScramForms(t *testing.T) {
	for password, want := range map[string]int{
		"Passw0rd!": 1, "Grüße-12": 1, "Gru\u0308ße-12": 1, "№7-Passw0rd": 2, "Pass\u00a0w0rd": 2, "Pass\u00adw0rd": 2, "Passw0rd😀": 1, "الف1": 1,
	} {
		if got := preparedForms([]string{password}); len(got) != want {
			t.Errorf("%q has the forms %q", password, got)
		}
	}
	s := testScram()
	for _, password := range []string{"№7-Passw0rd", "Pass\u00a0w0rd", "Gru\u0308ße-12"} {
		stored, err := s.Verifiers(t.Context(), Requester{}, "ann@example.com", password)
		if err != nil || !converse(t, s, "ann@example.com", password, stored) {
			t.Errorf("%q does not sign in: %v", password, err)
		}
	}
}

// An unknown name also has a salt, always the same.
func TestScramTellsNothing(t *testing.T) {
	s := testScram()
	salt := func(user string) string {
		e, err := s.Begin("n,,n=" + user + ",r=abc")
		if err != nil {
			t.Fatal(err)
		}
		_, salt, _ := strings.Cut(e.Challenge, ",")
		return salt
	}
	seen := map[string]string{}
	for _, user := range []string{"ann@example.com", "nobody@example.com", "no address", "", "api", strings.Repeat("x", 1000), "\xff"} {
		first, again := salt(user), salt(user)
		if first != again || len(first) != len(salt("ann@example.com")) {
			t.Errorf("%.20q: %s, then %s", user, first, again)
		}
		if other, twice := seen[first]; twice {
			t.Errorf("%q and %q have one salt", user, other)
		}
		seen[first] = user
	}
	if salt("ann@example.com") != salt("Ann@EXAMPLE.com") {
		t.Error("case matters")
	}
}

var firstMessages = map[string]string{ // with the user's name; "-" if the message is invalid
	"n,,n=ann@example.com,r=abc":    "ann@example.com",
	"y,,n=ann@example.com,r=abc":    "ann@example.com", // client supports channel binding, but the server did not offer it
	"n,a=eve,n=ann,r=abc":           "ann",
	"n,,n=a=2Cb=3Dc=3D2C,r=abc":     "a,b=c=2C",
	"n,,n=ann,r=abc,x=an extension": "ann",
	"p=tls-exporter,,n=ann,r=abc":   "-",
	"p=tls-unique,,n=ann,r=abc":     "-",
	"p=,,n=ann,r=abc":               "-",
	"n,,n=a=2cb,r=abc":              "-",
	"n,,n=ann=,r=abc":               "-",
	"n,a==,n=ann,r=abc":             "-",
	"n,,m=x,n=ann,r=abc":            "-",
	"n,,n=ann":                      "-",
	"n,,r=abc,n=ann":                "-",
	"n=ann,r=abc":                   "-",
	"x,,n=ann,r=abc":                "-",
	"":                              "-",
	"\x00ann\x00Passw0rd!":          "-",
	"n,,n=ann,r=" + strings.Repeat("a", maxSCRAMMessage): "-",
	"n,,n=" + strings.Repeat("=2C", 500) + ",r=abc":      strings.Repeat(",", 500),
}

func TestScramMessages(t *testing.T) {
	s := testScram()
	for first, user := range firstMessages {
		e, err := s.Begin(first)
		if user == "-" {
			if !errors.Is(err, ErrSCRAMMessage) {
				t.Errorf("%.80q was taken: %v", first, err)
			}
		} else if err != nil || e.User != user {
			t.Errorf("%.80q: %v", first, err)
		}
	}
	e, err := s.Begin("n,,n=ann,r=abc")
	if err != nil {
		t.Fatal(err)
	}
	r := "r=abc" + e.nonce
	zeros := base64.StdEncoding.EncodeToString(make([]byte, 32))
	if err := e.CheckFinalWithoutProof("c=biws," + r + ",p=" + zeros); err != nil {
		t.Error(err)
	}
	for _, final := range []string{
		"", "*", "c=biws", "c=biws," + r, "c=biws," + r + ",p=", "c=biws," + r + ",p=AAAA", "c=biws," + r + ",p=!",
		"c=biws,r=abc,p=" + zeros, "c=biws," + r + "x,p=" + zeros, "c=biws,r=" + e.nonce + ",p=" + zeros,
		"c=eSws," + r + ",p=" + zeros, "c=," + r + ",p=" + zeros, "c=!," + r + ",p=" + zeros, "p=" + zeros + ",c=biws," + r,
		"c=biws," + r + "," + strings.Repeat("x", maxSCRAMMessage) + ",p=" + zeros,
	} {
		if err := e.CheckFinalWithoutProof(final); !errors.Is(err, ErrSCRAMMessage) {
			t.Errorf("%.80q was taken: %v", final, err)
		}
	}
}

// No input proves the password without knowing it.
func FuzzScram(f *testing.F) {
	s := testScram()
	stored, err := s.Verifiers(f.Context(), Requester{}, "ann@example.com", "Passw0rd!")
	if err != nil {
		f.Fatal(err)
	}
	for first := range firstMessages {
		f.Add(first, "c=biws,r=abc", ",p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", true)
	}
	f.Fuzz(func(t *testing.T, first, before, after string, nonce bool) {
		e, err := s.Begin(first)
		if err != nil {
			return
		}
		final := before + after
		if nonce {
			final = before + e.nonce + after
		}
		if answer, ok := e.Verify(final, stored); ok {
			t.Fatalf("%q and %q proved a password: %s", first, final, answer)
		}
		if e.CheckFinalWithoutProof(final) == nil && !strings.Contains(final, e.nonce) {
			t.Fatalf("%q and %q have no nonce", first, final)
		}
	})
}

func BenchmarkVerifiers(b *testing.B) {
	s := testScram()
	for b.Loop() {
		if _, err := s.Verifiers(b.Context(), Requester{}, "ann@example.com", "Passw0rd!"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProves(b *testing.B) {
	s := testScram()
	stored, _ := s.Verifiers(b.Context(), Requester{}, "ann@example.com", "Passw0rd!")
	e, _ := s.Begin("n,,n=ann@example.com,r=abc")
	final := "c=biws,r=abc" + e.nonce + ",p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	for b.Loop() {
		if _, ok := e.Verify(final, stored); ok {
			b.Fatal("proved")
		}
	}
}
