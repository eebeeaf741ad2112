// SPDX-License-Identifier: Apache-2.0

package user_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/user"
)

// token returns the token of the link in the latest mail.
func (h *fixture) token(to string) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sent) == 0 || h.sent[len(h.sent)-1].to != to {
		h.t.Fatalf("the latest mail is not to %s: %+v", to, h.sent)
	}
	token := regexp.MustCompile(`mst_[a-z0-9]+`).FindString(h.sent[len(h.sent)-1].text)
	if token == "" {
		h.t.Fatalf("there is no link in %+v", h.sent)
	}
	return token
}

// unproven creates a user with an unverified address: by a link that others have seen.
func (h *fixture) unproven(email string, account db.ID) user.User {
	h.t.Helper()
	token, err := h.CreateInviteLink(h.t.Context(), account, email, user.RoleOwner, false)
	if err != nil {
		h.t.Fatal(err)
	}
	who, err := h.SignUp(h.t.Context(), token, user.CreateParams{Name: "Mallory", Password: good})
	if err != nil || who.Verified() {
		h.t.Fatalf("%+v %v", who, err)
	}
	return who
}

// factor turns on a second factor.
func (h *fixture) factor(who user.User) (recovery []string) {
	h.t.Helper()
	e, err := h.NewEnrolment(who)
	if err != nil {
		h.t.Fatal(err)
	}
	code, err := totp.GenerateCode(e.Secret, h.clock())
	if err != nil {
		h.t.Fatal(err)
	}
	if recovery, err = h.EnableTOTP(h.t.Context(), who, e.Secret, code); err != nil {
		h.t.Fatal(err)
	}
	return recovery
}

// accounts returns the accounts of a user.
func (h *fixture) accounts(id db.ID) (all []db.ID) {
	h.t.Helper()
	of, err := h.Memberships(h.t.Context(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, m := range of {
		all = append(all, m.Account)
	}
	return all
}

const theirs = "Their-Own-Horse-9"

// An unverified user can't keep the address from its real owner, who gets only the memberships that
// are selected.
func TestAddressIsProven(t *testing.T) {
	proofs := map[string]func(h *fixture, keep map[db.ID]bool) error{
		"by an invitation": func(h *fixture, keep map[db.ID]bool) error {
			token := h.token("Bob@example.com")
			if claims, err := h.UnverifiedMemberships(h.t.Context(), must(h.FindLink(h.t.Context(), token))); err != nil || len(claims) != 1 || claims[0].Account != first {
				h.t.Fatalf("asked about %v, %v", claims, err)
			}
			_, err := h.SignUp(h.t.Context(), token, user.CreateParams{Name: "Bob", Password: theirs, KeepMemberships: keep})
			return err
		},
		"by a reset": func(h *fixture, keep map[db.ID]bool) error {
			if err := h.SendResetLink(h.t.Context(), must(h.ByEmail(h.t.Context(), "bob@example.com"))); err != nil {
				h.t.Fatal(err)
			}
			return h.ResetPassword(h.t.Context(), h.token("bob@example.com"), theirs, keep)
		},
	}
	for name, prove := range proofs {
		for stays, kept := range map[bool][]db.ID{false: nil, true: {first}} {
			t.Run(name, func(t *testing.T) {
				each(t, func(t *testing.T, h *fixture) {
					ctx := t.Context()
					ann := h.create("ann@example.com", other)
					evil := h.unproven("bob@example.com", first)
					_, session := h.in("bob@example.com")
					s, _ := h.in("bob@example.com")
					recovery := h.factor(evil)
					if err := h.SendConfirmationLink(ctx, evil); err != nil {
						t.Fatal(err)
					}
					open := h.token("bob@example.com")
					if err := h.Invite(ctx, s, first, "", "next@example.com", user.RoleOwner); err != nil {
						t.Fatal(err)
					}
					next := h.token("next@example.com")
					from, _ := h.in("ann@example.com")
					if err := h.Invite(ctx, from, other, "", "Bob@example.com", user.RoleReader); err != nil {
						t.Fatal(err)
					}
					is(t, prove(h, nil), fault.Invalid)
					if err := prove(h, map[db.ID]bool{first: stays}); err != nil {
						t.Fatal(err)
					}
					bob, err := h.ByEmail(ctx, "bob@example.com")
					if err != nil || !bob.Verified() || bob.TOTP {
						t.Fatalf("%+v %v", bob, err)
					}
					want := kept
					if name == "by an invitation" {
						want = append(slices.Clone(kept), other)
						if bob.Address != "Bob@example.com" || bob.Name != "Bob" {
							t.Errorf("%+v", bob)
						}
					}
					if got := h.accounts(bob.ID); !slices.Equal(got, want) {
						t.Errorf("bob belongs to %v, want %v", got, want)
					}
					_, err = h.FindSession(ctx, session)
					is(t, err, fault.Unauthenticated)
					_, _, err = h.signIn("bob@example.com", good)
					is(t, err, fault.Unauthenticated)
					for _, token := range []string{open, next} {
						_, err = h.FindLink(ctx, token)
						is(t, err, fault.NotFound)
					}
					if n, err := h.CountRecoveryCodes(ctx, bob.ID); err != nil || n != 0 {
						t.Errorf("%d recovery codes such as %s are left, %v", n, recovery[0], err)
					}
					if len(want) > 0 {
						if in, _, err := h.signIn("bob@example.com", theirs); err != nil || in.NeedsSecondFactor {
							t.Errorf("%+v %v", in, err)
						}
					}
					entries, _, err := (&audit.Log{DB: h.DB, Now: h.clock}).List(ctx, first, db.Page{})
					if err != nil || !stays && (len(entries) == 0 || !strings.Contains(entries[0].Description, "without proof")) {
						t.Errorf("the account that was left is told %v, %v", entries, err)
					}
					if got := h.accounts(ann.ID); !slices.Equal(got, []db.ID{other}) {
						t.Errorf("ann belongs to %v", got)
					}
				})
			})
		}
	}
}

// There may be any number of accounts in the name of an address. The person who verifies it is
// asked only about those that are shown, and is a member of no other.
func TestAddressOfManyAccounts(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		evil := h.unproven("bob@example.com", first)
		add := db.SQL(`INSERT INTO dashboard_member (account, person, role, created_at) VALUES ($1, $2, 'owner', 0)`)
		var all []db.Statement
		for n := range 250 {
			all = append(all, add.With(1000+n, evil.ID))
		}
		dbtest.Exec(t, h.DB, all...)
		token, err := h.CreateInviteLink(ctx, other, "bob@example.com", user.RoleReader, true)
		if err != nil {
			t.Fatal(err)
		}
		claims, err := h.UnverifiedMemberships(ctx, must(h.FindLink(ctx, token)))
		if err != nil || len(claims) != 200 {
			t.Fatalf("asked about %d, %v", len(claims), err)
		}
		keep := map[db.ID]bool{}
		for i, m := range claims {
			keep[m.Account] = i == 7
		}
		bob, err := h.SignUp(ctx, token, user.CreateParams{Name: "Bob", Password: theirs, KeepMemberships: keep})
		if err != nil {
			t.Fatal(err)
		}
		if got := h.accounts(bob.ID); !slices.Equal(got, []db.ID{other, claims[7].Account}) {
			t.Errorf("bob belongs to %v", got)
		}
	})
}

// Of two concurrent verifications of an address, one succeeds.
func TestAddressIsProvenTwice(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		h.unproven("bob@example.com", first)
		var got, late atomic.Int64
		var wg sync.WaitGroup
		var tokens []string
		for range 8 {
			token, err := h.CreateInviteLink(ctx, other, "bob@example.com", user.RoleReader, true)
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, token)
		}
		for _, token := range tokens {
			wg.Go(func() {
				_, err := h.SignUp(ctx, token, user.CreateParams{Name: "Bob", Password: theirs, KeepMemberships: map[db.ID]bool{first: false}})
				switch {
				case err == nil:
					got.Add(1)
				case fault.Is(err, fault.Conflict):
					late.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got.Load() != 1 || late.Load() != 7 {
			t.Errorf("%d got it, %d were late", got.Load(), late.Load())
		}
	})
}

// must returns a value that can't fail here.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A link that others have seen takes over no address, verified or not.
func TestShownLinkTakesNothing(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		h.create("ann@example.com", first)
		h.unproven("bob@example.com", first)
		for _, email := range []string{"ann@example.com", "bob@example.com"} {
			token, err := h.CreateInviteLink(ctx, other, email, user.RoleOwner, false)
			if err != nil {
				t.Fatal(err)
			}
			if claims, err := h.UnverifiedMemberships(ctx, must(h.FindLink(ctx, token))); err != nil || len(claims) != 0 {
				t.Errorf("asked about %v, %v", claims, err)
			}
			_, err = h.SignUp(ctx, token, user.CreateParams{Name: "Mallory", Password: theirs, KeepMemberships: map[db.ID]bool{first: true}})
			is(t, err, fault.Conflict)
			h.in(email)
		}
		// A verified address isn't taken over by the next person who verifies it: that person signs
		// in.
		token, err := h.CreateInviteLink(ctx, other, "ann@example.com", user.RoleOwner, true)
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.SignUp(ctx, token, user.CreateParams{Name: "Ann", Password: theirs})
		is(t, err, fault.Conflict)
		// A reset by such a link verifies nothing, but removes the second factor of an unverified
		// user.
		bob := must(h.ByEmail(ctx, "bob@example.com"))
		h.factor(bob)
		if token, err = h.CreateResetLink(ctx, bob, false); err != nil {
			t.Fatal(err)
		}
		if err := h.ResetPassword(ctx, token, theirs, nil); err != nil {
			t.Fatal(err)
		}
		in, _, err := h.signIn("bob@example.com", theirs)
		if err != nil || in.NeedsSecondFactor || in.User.Verified() || in.Account != first {
			t.Errorf("%+v %v", in, err)
		}
		if n, err := h.CountRecoveryCodes(ctx, bob.ID); err != nil || n != 0 {
			t.Errorf("%d recovery codes, %v", n, err)
		}
		// The second factor of a verified user stays.
		ann := must(h.ByEmail(ctx, "ann@example.com"))
		h.factor(ann)
		if err := h.SendResetLink(ctx, ann); err != nil {
			t.Fatal(err)
		}
		if err := h.ResetPassword(ctx, h.token("ann@example.com"), theirs, nil); err != nil {
			t.Fatal(err)
		}
		if in, _, err := h.signIn("ann@example.com", theirs); err != nil || !in.NeedsSecondFactor || in.Account != first {
			t.Errorf("%+v %v", in, err)
		}
	})
}

// Verifying an operator's address doesn't give operator rights.
func TestOperatorIsNotClaimed(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		setup, err := h.CreateSetupLink(ctx)
		if err != nil {
			t.Fatal(err)
		}
		root, err := h.SignUp(ctx, setup, user.CreateParams{Email: "root@example.com", Name: "Root", Password: good}, ops, first)
		if err != nil || root.Verified() {
			t.Fatalf("%+v %v", root, err)
		}
		is(t, h.SendResetLink(ctx, root), fault.Denied)
		if len(h.sent) != 0 {
			t.Fatalf("sent %+v", h.sent)
		}
		h.create("ann@example.com", other)
		from, _ := h.in("ann@example.com")
		if err := h.Invite(ctx, from, other, "", root.Email, user.RoleReader); err != nil {
			t.Fatal(err)
		}
		token := h.token(root.Email)
		// The operator, who receives that mail, accepts it and stays an operator.
		claims, err := h.UnverifiedMemberships(ctx, must(h.FindLink(ctx, token)))
		if err != nil || len(claims) != 1 || claims[0].Account != first {
			t.Fatalf("asked about %v, %v", claims, err)
		}
		back, err := h.SignUp(ctx, token, user.CreateParams{Name: "Mallory", Password: theirs, KeepMemberships: map[db.ID]bool{first: true, ops: true}})
		if err != nil {
			t.Fatal(err)
		}
		if got := h.accounts(back.ID); !slices.Equal(got, []db.ID{first, other}) {
			t.Errorf("belongs to %v", got)
		}
	})
}

// A signed-in user who follows the link in the mail confirms the address; another user's session
// doesn't confirm it.
func TestConfirmAddress(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		h.create("ann@example.com", first)
		evil := h.unproven("bob@example.com", first)
		if err := h.SendConfirmationLink(ctx, evil); err != nil {
			t.Fatal(err)
		}
		token := h.token("bob@example.com")
		another, _ := h.in("ann@example.com")
		is(t, h.ConfirmAddress(ctx, another, token), fault.Denied)
		is(t, h.ResetPassword(ctx, token, theirs, nil), fault.NotFound)
		_, err := h.SignUp(ctx, token, user.CreateParams{Email: "eve@example.com", Name: "Eve", Password: good})
		is(t, err, fault.NotFound)
		bob, _ := h.in("bob@example.com")
		if err := h.ConfirmAddress(ctx, bob, token); err != nil {
			t.Fatal(err)
		}
		if got := must(h.Get(ctx, evil.ID)); !got.Verified() {
			t.Errorf("%+v", got)
		}
		is(t, h.ConfirmAddress(ctx, bob, token), fault.NotFound)
		// Accepting an invitation that was sent by mail confirms it too.
		carl := h.unproven("carl@example.com", first)
		is(t, h.Invite(ctx, another, other, "", "carl@example.com", user.RoleReader), fault.Denied) // ann is no owner there
		h.create("dora@example.com", other)
		from, _ := h.in("dora@example.com")
		if err := h.Invite(ctx, from, other, "", "carl@example.com", user.RoleReader); err != nil {
			t.Fatal(err)
		}
		if _, err := h.AcceptInvitation(ctx, h.token("carl@example.com"), carl); err != nil {
			t.Fatal(err)
		}
		if got := must(h.Get(ctx, carl.ID)); !got.Verified() || !slices.Equal(h.accounts(carl.ID), []db.ID{first, other}) {
			t.Errorf("%+v", got)
		}
	})
}

// Two addresses that are equal only after Unicode folding belong to two persons, and mail goes to
// the address as given.
func TestAddressesAreNotFolded(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		for _, email := range []string{"weisser@example.com", "Weißer@example.com", "kim@example.com", "\u212aim@example.com"} {
			h.create(email, first)
		}
		for given, exact := range map[string]string{"WEISSER@example.com": "weisser@example.com", "weißer@EXAMPLE.com": "Weißer@example.com", "Kim@example.com": "kim@example.com", "\u212aim@example.com": "\u212aim@example.com"} {
			who, err := h.ByEmail(ctx, given)
			if err != nil {
				t.Fatal(given, err)
			}
			if err := h.SendResetLink(ctx, who); err != nil {
				t.Fatal(err)
			}
			h.token(exact)
		}
	})
}

// The open invitations of a former owner end, including those that are created at the same moment.
func TestInvitationsEndWithTheRole(t *testing.T) {
	ends := map[string]func(ctx context.Context, h *fixture, id db.ID) error{
		"removed": func(ctx context.Context, h *fixture, id db.ID) error { return h.RemoveMember(ctx, first, id) },
		"demoted": func(ctx context.Context, h *fixture, id db.ID) error {
			return h.SetRole(ctx, first, id, user.RoleMember)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, h *fixture) {
				ctx := t.Context()
				h.create("ann@example.com", first)
				evil := h.create("eve@example.com", first, other)
				in, _ := h.in("eve@example.com")
				if err := h.SwitchAccount(ctx, in, first); err != nil {
					t.Fatal(err)
				}
				in.Account = first
				elsewhere := in
				elsewhere.Account = other
				if err := h.Invite(ctx, elsewhere, other, "", "kept@example.com", user.RoleReader); err != nil {
					t.Fatal(err)
				}
				kept := h.token("kept@example.com")
				var wg sync.WaitGroup
				for i := range 20 {
					wg.Go(func() {
						err := h.Invite(ctx, in, first, "", string(rune('a'+i))+"@example.com", user.RoleOwner)
						if err != nil && !fault.Is(err, fault.Denied) {
							t.Error(err)
						}
					})
				}
				wg.Go(func() {
					if err := end(ctx, h, evil.ID); err != nil {
						t.Error(err)
					}
				})
				wg.Wait()
				if open, err := h.Invitations(ctx, first); err != nil || len(open) != 0 {
					t.Errorf("%d invitations are open, %v", len(open), err)
				}
				is(t, h.Invite(ctx, in, first, "", "late@example.com", user.RoleOwner), fault.Denied)
				if _, err := h.FindLink(ctx, kept); err != nil {
					t.Error("that to another account is over:", err)
				}
			})
		})
	}
}

// Concurrent requests can't exceed the mail limits; a mail that was not sent doesn't count and
// leaves no link.
func TestServiceMailIsLimited(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		ann := h.create("ann@example.com", first)
		in, _ := h.in("ann@example.com")
		var sent, limited atomic.Int64
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				err := h.Invite(ctx, in, first, "", "bob+"+string(rune('a'+i%26))+"@example.com", user.RoleReader)
				switch {
				case err == nil:
					sent.Add(1)
				case fault.Is(err, fault.RateLimited):
					limited.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if open, err := h.Invitations(ctx, first); err != nil || sent.Load() != 3 || limited.Load() != 197 || len(h.sent) != 3 || len(open) != 3 {
			t.Errorf("%d sent, %d mails, %d open, %d refused, %v", sent.Load(), len(h.sent), len(open), limited.Load(), err)
		}
		for range 6 {
			if err := h.SendResetLink(ctx, ann); err != nil {
				t.Fatal(err)
			}
		}
		is(t, h.SendResetLink(ctx, ann), fault.RateLimited)
		if err := h.Notify(ctx, ann, "New password", "You have one."); err != nil {
			t.Error("who asks for many links keeps notices away:", err)
		}
		h.forward(time.Hour)
		if err := h.SendResetLink(ctx, ann); err != nil {
			t.Error("an hour later:", err)
		}

		send := h.SendMail
		broken := errors.New("the queue is full")
		h.SendMail = func(context.Context, string, string, string) error { return broken }
		for range 20 {
			err := h.Invite(ctx, in, first, "", "carl@example.com", user.RoleReader)
			is(t, err, fault.Unavailable)
			if !errors.Is(err, broken) {
				t.Fatal(err)
			}
		}
		h.SendMail = send
		if open, err := h.Invitations(ctx, first); err != nil || len(open) != 3 {
			t.Errorf("%d are open, %v", len(open), err)
		}
		if err := h.Invite(ctx, in, first, "", "carl@example.com", user.RoleReader); err != nil {
			t.Error("what was not sent counts:", err)
		}
		h.forward(48 * time.Hour)
		if _, err := h.PruneSessions(ctx, h.clock(), 100); err != nil {
			t.Fatal(err)
		}
	})
}

// A few accounts that send the maximum of invitations to somebody don't block the invitations of
// others, or those to another person with a similar address.
func TestInvitationsOfOthers(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		var accounts []db.ID
		for i := range 17 {
			accounts = append(accounts, first+db.ID(i))
		}
		h.create("ann@example.com", accounts...)
		in, _ := h.in("ann@example.com")
		sent := 0
		invite := func(account db.ID, to string) error {
			in.Account = account
			return h.Invite(t.Context(), in, account, "", to, user.RoleReader)
		}
		for _, account := range accounts {
			for range 4 {
				switch err := invite(account, "weißer@example.org"); {
				case err == nil:
					sent++
				case !fault.Is(err, fault.RateLimited):
					t.Fatal(err)
				}
			}
		}
		if sent != 50 {
			t.Errorf("%d invitations were sent to one person", sent)
		}
		if err := invite(first, "weisser@example.org"); err != nil {
			t.Error("to another person:", err)
		}
	})
}

// A quoted local part may contain any text, which would appear in invitations to others. So such
// addresses are rejected.
func TestQuotedAddressIsRefused(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		const link = `"go to https://evil.test/login now"@example.com`
		if made, err := h.Create(ctx, user.CreateParams{Email: link, Name: "Ann", Password: good}, first); !fault.Is(err, fault.Invalid) {
			t.Errorf("a user: %+v, %v", made, err)
		}
		h.create("ann@example.com", first)
		in, _ := h.in("ann@example.com")
		is(t, h.Invite(ctx, in, first, "", link, user.RoleReader), fault.Invalid)
		if _, err := h.CreateInviteLink(ctx, first, link, user.RoleOwner, true); !fault.Is(err, fault.Invalid) {
			t.Errorf("an invitation: %v", err)
		}
		// Redundant quotation marks are accepted.
		if err := h.Invite(ctx, in, first, "", `"bob"@example.com`, user.RoleReader); err != nil {
			t.Error(err)
		}
	})
}

// An invitation reads the same for people with and without a user elsewhere, and a name in it is
// never a link.
func TestInvitationTellsNothing(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		ann := h.create("ann@example.com", first)
		h.create("bob@example.com", other)
		if err := h.Rename(ctx, ann.ID, "Your bank, https://evil.example/?a=b now"); err != nil {
			t.Fatal(err)
		}
		in, _ := h.in("ann@example.com")
		var texts []string
		for _, email := range []string{"bob@example.com", "new@example.com"} {
			if err := h.Invite(ctx, in, first, "Acme Inc. evil.example", email, user.RoleReader); err != nil {
				t.Fatal(err)
			}
			last := h.sent[len(h.sent)-1]
			texts = append(texts, strings.ReplaceAll(last.subject+last.text, h.token(email), ""))
		}
		if texts[0] != texts[1] {
			t.Errorf("%q\n%q", texts[0], texts[1])
		}
		if strings.Contains(texts[0], "evil.example") || strings.Contains(texts[0], "://evil") || !strings.Contains(texts[0], "Acme Inc. evilexample") {
			t.Error(texts[0])
		}
		is(t, h.Invite(ctx, in, first, "", "ann@example.com", user.RoleReader), fault.Conflict) // members of the own account are known
	})
}
