// SPDX-License-Identifier: Apache-2.0

package user_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/credential/credentialtest"

	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/pquerna/otp/totp"

	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/user"
)

const (
	ops   db.ID = 1 // accounts
	first db.ID = 100
	other db.ID = 200
	good        = "Correct-Horse-7"
)

var home = netip.MustParseAddr("192.0.2.1")

type fixture struct {
	*user.Users
	t    *testing.T
	now  time.Time
	mu   sync.Mutex
	sent []mail // service mails
}

type mail struct{ to, subject, text string }

func (h *fixture) forward(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

func (h *fixture) clock() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func each(t *testing.T, f func(t *testing.T, h *fixture)) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := &fixture{t: t, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
		logins := ratelimit.NewLoginLimiter(d, []byte("a key"), nil)
		logins.Now, logins.Sleep = h.clock, func(context.Context, time.Duration) error { return nil }
		h.Users = &user.Users{DB: d, Key: testkit.Key(t), Hasher: credential.NewHasherWithCost(credentialtest.Cost), Logins: logins, Issuer: "mail.example.net", BaseURL: "https://mail.example.net", OperatorAccount: ops, Now: h.clock}
		h.SendMail = func(_ context.Context, to, subject, text string) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.sent = append(h.sent, mail{to, subject, text})
			return nil
		}
		f(t, h)
	})
}

func (h *fixture) create(email string, accounts ...db.ID) user.User {
	h.t.Helper()
	u, err := h.Create(h.t.Context(), user.CreateParams{Email: email, Name: "Ann", Password: good}, accounts...)
	if err != nil {
		h.t.Fatal(err)
	}
	return u
}

func (h *fixture) signIn(email, password string) (user.Session, string, error) {
	return h.SignIn(h.t.Context(), email, password, home, "a browser")
}

func (h *fixture) in(email string) (user.Session, string) {
	h.t.Helper()
	s, token, err := h.signIn(email, good)
	if err != nil {
		h.t.Fatal(err)
	}
	return s, token
}

// is fails unless err is of a kind.
func is(t *testing.T, err error, k fault.Kind) {
	t.Helper()
	if !fault.Is(err, k) {
		t.Fatalf("got %v", err)
	}
}

func TestSignIn(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		ann := h.create("Ann@Example.com", first, other)
		s, token, err := h.signIn(" ann@EXAMPLE.com ", good)
		if err != nil || s.User.ID != ann.ID || s.Account != other || s.Role != user.RoleOwner || s.NeedsSecondFactor {
			t.Fatalf("%+v %v", s, err)
		}
		got, err := h.FindSession(ctx, token)
		if err != nil || got.ID != s.ID || got.RemoteAddr != home || got.User.Email != "ann@example.com" {
			t.Fatalf("%+v %v", got, err)
		}
		for _, wrong := range [][2]string{{"ann@example.com", "Wrong-Horse-7"}, {"nobody@example.com", good}, {"no address", good}, {"ann@example.com", ""}} {
			_, _, err := h.signIn(wrong[0], wrong[1])
			is(t, err, fault.Unauthenticated)
		}
		_, err = h.Create(ctx, user.CreateParams{Email: "ann@example.com", Name: "Ann", Password: good})
		is(t, err, fault.Conflict)
		_, err = h.Create(ctx, user.CreateParams{Email: "x", Name: "\n", Password: "short"})
		var f *fault.Error
		if !errors.As(err, &f) || len(f.Fields) < 4 {
			t.Fatalf("not all that is wrong is told at once: %v", err)
		}
		// A session ends two weeks after it was last used, and a month after it began.
		for range 4 {
			h.forward(7 * 24 * time.Hour)
			if _, err := h.FindSession(ctx, token); err != nil {
				t.Fatal(err)
			}
		}
		h.forward(3 * 24 * time.Hour)
		_, err = h.FindSession(ctx, token)
		is(t, err, fault.Unauthenticated)
		_, idle := h.in("ann@example.com")
		h.forward(15 * 24 * time.Hour)
		_, err = h.FindSession(ctx, idle)
		is(t, err, fault.Unauthenticated)
		if n, err := h.PruneSessions(ctx, h.clock(), 100); err != nil || n != 2 {
			t.Fatalf("pruned %d, %v", n, err)
		}
	})
}

func TestSessions(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		ann := h.create("ann@example.com", first)
		bob := h.create("bob@example.com", first, other)
		a1, t1 := h.in("ann@example.com")
		_, t2 := h.in("ann@example.com")
		b, tb := h.in("bob@example.com")
		if err := h.SignOut(ctx, bob.ID, a1.ID); err != nil { // another user's session
			t.Fatal(err)
		}
		if _, err := h.FindSession(ctx, t1); err != nil {
			t.Fatal("somebody else ended a session:", err)
		}
		is(t, h.SwitchAccount(ctx, a1, other), fault.NotFound)
		if err := h.SwitchAccount(ctx, b, first); err != nil {
			t.Fatal(err)
		}
		if err := h.SignOutOthers(ctx, ann.ID, a1.ID); err != nil {
			t.Fatal(err)
		}
		_, err := h.FindSession(ctx, t2)
		is(t, err, fault.Unauthenticated)
		// A changed password ends other sessions, and needs the old one.
		err = h.ChangePassword(ctx, a1, "Wrong-Horse-7", "Another-Horse-8")
		is(t, err, fault.Invalid)
		_, t3 := h.in("ann@example.com")
		if err := h.ChangePassword(ctx, a1, good, "Another-Horse-8"); err != nil {
			t.Fatal(err)
		}
		_, err = h.FindSession(ctx, t3)
		is(t, err, fault.Unauthenticated)
		if _, err := h.FindSession(ctx, t1); err != nil {
			t.Fatal(err)
		}
		_, _, err = h.signIn("ann@example.com", good)
		is(t, err, fault.Unauthenticated)
		// A user who leaves the account loses access to it.
		if err := h.RemoveMember(ctx, first, bob.ID); err != nil {
			t.Fatal(err)
		}
		_, err = h.FindSession(ctx, tb)
		is(t, err, fault.Unauthenticated)
	})
}

// If nothing can be written, people stay signed in.
func TestSessionNotNoted(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		h.create("ann@example.com", first)
		_, token := h.in("ann@example.com")
		if h.DB.Engine() == db.SQLite {
			dbtest.Exec(t, h.DB, db.SQL("CREATE TRIGGER no_room BEFORE UPDATE ON dashboard_session BEGIN SELECT RAISE(ABORT, 'full'); END").With())
		} else {
			dbtest.Exec(t, h.DB, db.SQL("CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION USING ERRCODE = ''53100''; END'").With(),
				db.SQL("CREATE TRIGGER no_room BEFORE UPDATE ON dashboard_session EXECUTE FUNCTION no_room()").With())
		}
		h.forward(time.Hour)
		if s, err := h.FindSession(t.Context(), token); err != nil || s.Account != first {
			t.Fatalf("%+v %v", s, err)
		}
	})
}

// A sign-in during a password change fails as with a wrong password; otherwise the session would
// outlive those that the change ends.
func TestSignInWhilePasswordChanges(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ann := h.create("ann@example.com", first)
		reset, err := h.CreateResetLink(t.Context(), ann, false)
		if err != nil {
			t.Fatal(err)
		}
		change := sync.OnceFunc(func() {
			h.Now = h.clock
			if err := h.ResetPassword(t.Context(), reset, "Other-Horse-8", nil); err != nil {
				t.Error(err)
			}
		})
		h.Now = func() time.Time { // called when the password was found right
			change()
			return h.clock()
		}
		_, _, err = h.signIn("ann@example.com", good)
		is(t, err, fault.Unauthenticated)
		if list, err := h.Sessions(t.Context(), ann.ID); err != nil || len(list) != 0 {
			t.Errorf("%d sessions, %v", len(list), err)
		}
	})
}

func TestGuessing(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		h.create("ann@example.com", first)
		for _, who := range []string{"ann@example.com", "nobody@example.com"} {
			from := netip.AddrFrom4([4]byte{198, 51, 100, who[0]})
			for i := range 12 {
				want := fault.Unauthenticated
				if i >= 10 {
					want = fault.RateLimited
				}
				_, _, err := h.SignIn(t.Context(), who, fmt.Sprint("Wrong-Horse-", i), from, "")
				is(t, err, want)
			}
		}
		s, _ := h.in("ann@example.com")
		for i := range 12 { // a signed-in user who guesses the current password
			want := fault.Invalid
			if i >= 10 {
				want = fault.RateLimited
			}
			is(t, h.ChangePassword(t.Context(), s, fmt.Sprint("No-Horse-", i), "Another-Horse-7"), want)
		}
	})
}

func TestSecondFactor(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		ann := h.create("ann@example.com", first)
		e, err := h.NewEnrolment(ann)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := h.ParseEnrolment(ann, e.Secret); err != nil || again.URL != e.URL {
			t.Fatalf("%+v is not %+v: %v", again, e, err)
		}
		code := func() string {
			c, err := totp.GenerateCode(e.Secret, h.clock())
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		_, err = h.EnableTOTP(ctx, ann, e.Secret, "000000")
		is(t, err, fault.Invalid)
		recovery, err := h.EnableTOTP(ctx, ann, e.Secret, code())
		if err != nil || len(recovery) != 10 {
			t.Fatal(recovery, err)
		}
		_, err = h.EnableTOTP(ctx, ann, e.Secret, code())
		is(t, err, fault.Conflict)

		s, token, err := h.signIn("ann@example.com", good)
		if err != nil || !s.NeedsSecondFactor {
			t.Fatalf("%+v %v", s, err)
		}
		if got, err := h.FindSession(ctx, token); err != nil || !got.NeedsSecondFactor {
			t.Fatalf("%+v %v", got, err)
		}
		is(t, h.VerifySecondFactor(ctx, s, code()), fault.Invalid) // already used for the enrolment
		h.forward(30 * time.Second)
		if err := h.VerifySecondFactor(ctx, s, code()[:3]+" "+code()[3:]); err != nil {
			t.Fatal(err)
		}
		if got, err := h.FindSession(ctx, token); err != nil || got.NeedsSecondFactor {
			t.Fatalf("%+v %v", got, err)
		}
		s2, _, err := h.signIn("ann@example.com", good)
		if err != nil {
			t.Fatal(err)
		}
		is(t, h.VerifySecondFactor(ctx, s2, code()), fault.Invalid) // each code is accepted once
		if err := h.VerifySecondFactor(ctx, s2, recovery[3]); err != nil {
			t.Fatal(err)
		}
		is(t, h.VerifySecondFactor(ctx, s2, recovery[3]), fault.Invalid)
		if n, err := h.CountRecoveryCodes(ctx, ann.ID); err != nil || n != 9 {
			t.Fatal(n, err)
		}
		if err := h.DisableTOTP(ctx, s2, recovery[4]); err != nil {
			t.Fatal(err)
		}
		if s, _, err := h.signIn("ann@example.com", good); err != nil || s.NeedsSecondFactor {
			t.Fatalf("%+v %v", s, err)
		}
		// A session without its second factor ends soon.
		h.forward(time.Hour)
		if n, err := h.PruneSessions(ctx, h.clock(), 100); err != nil || n != 0 {
			t.Fatal(n, err) // all three were completed or had no second factor
		}
	})
}

func TestLinks(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		earlier, err := h.CreateSetupLink(ctx)
		if err != nil {
			t.Fatal(err)
		}
		setup, err := h.CreateSetupLink(ctx)
		if err != nil {
			t.Fatal(err)
		}
		// Of several concurrent uses of a link, one succeeds.
		var in, out int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				_, err := h.SignUp(ctx, setup, user.CreateParams{Email: string(rune('a'+i)) + "@example.com", Name: "N", Password: good}, first)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					in++
				case fault.Is(err, fault.NotFound):
					out++
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if in != 1 || out != 5 {
			t.Fatalf("%d were let in, %d were not", in, out)
		}
		_, err = h.FindLink(ctx, earlier) // the service is already set up
		is(t, err, fault.NotFound)

		invite, err := h.CreateInviteLink(ctx, other, "Carl@example.com", user.RoleReader, false)
		if err != nil {
			t.Fatal(err)
		}
		carl, err := h.SignUp(ctx, invite, user.CreateParams{Email: "somebody@else.example", Name: "Carl", Password: good})
		if err != nil || carl.Email != "carl@example.com" {
			t.Fatalf("an invitation is for whom it was made: %+v %v", carl, err)
		}
		if s, _ := h.in("carl@example.com"); s.Account != other || s.Role != user.RoleReader {
			t.Fatalf("%+v", s)
		}
		second, err := h.CreateInviteLink(ctx, first, "carl@example.com", user.RoleMember, false)
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.AcceptInvitation(ctx, second, h.create("dora@example.com", first))
		is(t, err, fault.Denied)
		if account, err := h.AcceptInvitation(ctx, second, carl); err != nil || account != first {
			t.Fatal(account, err)
		}
		_, err = h.AcceptInvitation(ctx, second, carl)
		is(t, err, fault.NotFound)

		_, err = h.CreateInviteLink(ctx, first, "Carl@example.com", user.RoleOwner, false) // accepting it would not change the role
		is(t, err, fault.Conflict)

		third, err := h.CreateInviteLink(ctx, first, "eve@example.com", user.RoleOwner, false)
		if err != nil {
			t.Fatal(err)
		}
		open, err := h.Invitations(ctx, first)
		if err != nil || len(open) != 1 {
			t.Fatal(open, err)
		}
		is(t, h.WithdrawInvitation(ctx, other, open[0].ID), fault.Conflict) // another account's
		if _, err := h.FindLink(ctx, third); err != nil {
			t.Fatal("another account withdrew an invitation:", err)
		}
		h.forward(8 * 24 * time.Hour)
		_, err = h.FindLink(ctx, third)
		is(t, err, fault.NotFound)

		_, token := h.in("carl@example.com")
		reset, err := h.CreateResetLink(ctx, carl, false)
		if err != nil {
			t.Fatal(err)
		}
		older, err := h.CreateResetLink(ctx, carl, false)
		if err != nil {
			t.Fatal(err)
		}
		is(t, h.ResetPassword(ctx, reset, "weak", nil), fault.Invalid)
		if err := h.ResetPassword(ctx, reset, "Another-Horse-8", nil); err != nil {
			t.Fatal(err)
		}
		_, err = h.FindSession(ctx, token)
		is(t, err, fault.Unauthenticated)
		is(t, h.ResetPassword(ctx, reset, "Another-Horse-9", nil), fault.NotFound)
		is(t, h.ResetPassword(ctx, older, "Another-Horse-9", nil), fault.NotFound) // requested before
		for _, bad := range []string{"", "mst_", "mst_aaaa", "mss_" + reset[4:]} {
			_, err := h.FindLink(ctx, bad)
			is(t, err, fault.NotFound)
		}
	})
}

// A user who was invited twice can't use either link after being removed.
func TestRemovedStaysOut(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		h.create("ann@example.com", first, other)
		bob := h.create("bob@example.com")
		var links []string
		for _, account := range []db.ID{first, first, other} {
			link, err := h.CreateInviteLink(ctx, account, "bob@example.com", user.RoleOwner, false)
			if err != nil {
				t.Fatal(err)
			}
			links = append(links, link)
		}
		if _, err := h.AcceptInvitation(ctx, links[0], bob); err != nil {
			t.Fatal(err)
		}
		if err := h.RemoveMember(ctx, first, bob.ID); err != nil {
			t.Fatal(err)
		}
		_, err := h.AcceptInvitation(ctx, links[1], bob)
		is(t, err, fault.NotFound)
		if account, err := h.AcceptInvitation(ctx, links[2], bob); err != nil || account != other {
			t.Fatal(account, err)
		}
	})
}

// A user who was removed from the last account, and is invited again, starts again: with a new
// password and without access by the old one.
func TestRemovedComesBack(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		h.create("ann@example.com", first)
		bob := h.create("bob@example.com", first)
		e, err := h.NewEnrolment(bob)
		if err != nil {
			t.Fatal(err)
		}
		code, err := totp.GenerateCode(e.Secret, h.clock())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.EnableTOTP(ctx, bob, e.Secret, code); err != nil {
			t.Fatal(err)
		}
		_, before := h.in("bob@example.com")
		if err := h.RemoveMember(ctx, first, bob.ID); err != nil {
			t.Fatal(err)
		}
		link, err := h.CreateInviteLink(ctx, first, "bob@example.com", user.RoleReader, false)
		if err != nil {
			t.Fatal(err)
		}
		const fresh = "Another-Horse-8"
		back, err := h.SignUp(ctx, link, user.CreateParams{Name: "Bob", Password: fresh})
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := h.signIn("bob@example.com", fresh)
		if err != nil || s.User.ID != back.ID || s.Role != user.RoleReader || s.NeedsSecondFactor {
			t.Fatalf("%+v %v", s, err)
		}
		_, _, err = h.signIn("bob@example.com", good)
		is(t, err, fault.Unauthenticated)
		_, err = h.FindSession(ctx, before)
		is(t, err, fault.Unauthenticated)
		again, err := h.CreateInviteLink(ctx, other, "bob@example.com", user.RoleOwner, false)
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.SignUp(ctx, again, user.CreateParams{Name: "Mallory", Password: good})
		is(t, err, fault.Conflict)
	})
}

// If two owners leave concurrently, one owner is left.
func TestLastOwner(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		ann, bob := h.create("ann@example.com", first), h.create("bob@example.com", first)
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i, u := range []user.User{ann, bob} {
			wg.Go(func() {
				if i == 0 {
					errs[i] = h.RemoveMember(ctx, first, u.ID)
				} else {
					errs[i] = h.SetRole(ctx, first, u.ID, user.RoleReader)
				}
			})
		}
		wg.Wait()
		left, err := h.Members(ctx, first)
		if err != nil {
			t.Fatal(err)
		}
		owners := 0
		for _, m := range left {
			if m.Role == user.RoleOwner {
				owners++
			}
		}
		if owners != 1 || (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("%d owners are left; %v", owners, errs)
		}
		is(t, h.SetRole(ctx, other, ann.ID, user.RoleOwner), fault.NotFound)
		is(t, h.SetRole(ctx, first, ann.ID, "king"), fault.Invalid)
	})
}

// A user's actions, and failed sign-ins, are in the audit log of the account.
func TestAudited(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		ann := h.create("ann@example.com", first)
		s, _ := h.in("ann@example.com")
		if err := h.RecordAudit(ctx, s, home, "Did one thing."); err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.SignIn(ctx, "ann@example.com", "wrong", home, ""); !fault.Is(err, fault.Unauthenticated) {
			t.Fatal(err)
		}
		if err := h.FlushFailedSignIns(ctx); err != nil {
			t.Fatal(err)
		}
		log := &audit.Log{DB: h.DB, Now: h.clock}
		list, _, err := log.List(ctx, first, db.Page{})
		if err != nil || len(list) != 3 {
			t.Fatal(list, err)
		}
		if e := list[2]; e.Description != "Signed in." || e.Actor != s.Actor(home) {
			t.Errorf("%+v", e)
		}
		if e := list[1]; e.Description != "Did one thing." || e.Actor != (audit.Actor{Kind: audit.ActorUser, ID: ann.ID, Name: "ann@example.com", IP: home}) || e.State != audit.StateDone {
			t.Errorf("%+v", e)
		}
		if e := list[0]; e.Description != "Failed to sign in: wrong password." || e.Actor != (audit.Actor{Kind: audit.ActorAnonymous, Name: "ann@example.com", IP: home}) ||
			e.State != audit.StateFailed || e.Object != ann.ID.String() {
			t.Errorf("%+v", e)
		}
	})
}

// Owners can always read mail, members unless an owner forbids it, readers only if an owner allows
// it.
func TestReadsMail(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		h.create("owner@example.com", first)
		ann := h.create("ann@example.com", first)
		_, token := h.in("ann@example.com")
		may := func(want bool) {
			t.Helper()
			s, err := h.FindSession(ctx, token)
			if err != nil || s.ReadsMail != want {
				t.Errorf("may read mail: %v, %v", s.ReadsMail, err)
			}
			members, err := h.Members(ctx, first)
			if err != nil || members[1].ReadsMail != want {
				t.Errorf("members %+v, %v", members, err)
			}
		}
		set := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		may(true)
		set(h.SetReadsMail(ctx, first, ann.ID, false))
		may(true) // an owner
		set(h.SetRole(ctx, first, ann.ID, user.RoleMember))
		may(true)
		set(h.SetReadsMail(ctx, first, ann.ID, false))
		set(h.SetRole(ctx, first, ann.ID, user.RoleMember))
		may(false)
		set(h.SetReadsMail(ctx, first, ann.ID, true))
		may(true)
		s, err := h.FindSession(ctx, token)
		set(err)
		set(h.SetRole(ctx, first, ann.ID, user.RoleReader))
		may(false)
		is(t, h.CheckSession(ctx, s), fault.Unauthenticated)
		set(h.SetReadsMail(ctx, first, ann.ID, true))
		set(h.SetRole(ctx, first, ann.ID, user.RoleReader))
		may(true)
		is(t, h.SetReadsMail(ctx, other, ann.ID, true), fault.NotFound)
	})
}

// A node that starts while the first user is created may show another setup link, which doesn't
// work.
func TestSetupIsOver(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		h.create("ann@example.com", first)
		late, err := h.CreateSetupLink(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.SignUp(t.Context(), late, user.CreateParams{Email: "eve@example.com", Name: "Eve", Password: good}, first)
		is(t, err, fault.NotFound)
		if _, err := h.ByEmail(t.Context(), "eve@example.com"); !fault.Is(err, fault.NotFound) {
			t.Errorf("she is in: %v", err)
		}
	})
}

var (
	firstUser = db.SQL(`INSERT INTO dashboard_user (id, email, name, password, created_at) VALUES ($1, 'ann@example.com', 'Ann', '', 0)`)
	noSetups  = db.SQL(`DELETE FROM dashboard_ticket WHERE kind = 'setup'`)
	blocked   = db.SQL(`SELECT COUNT(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0 AND query LIKE '%dashboard_ticket%'`)
)

// A link that was created and used before the first user was committed doesn't work either.
func TestSetupTwice(t *testing.T) {
	d, _ := leasetest.Open(t, dbtest.Postgres(t)) // SQLite has one writer
	u := &user.Users{DB: d, Hasher: credential.NewHasherWithCost(credentialtest.Cost), Now: time.Now}
	ctx := t.Context()
	if _, err := u.CreateSetupLink(ctx); err != nil {
		t.Fatal(err)
	}
	made, commit, over := make(chan bool), make(chan bool), make(chan error, 2)
	go func() { // as redeemLink does
		over <- d.Tx(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, firstUser.With(d.NewID()))
			if err == nil {
				_, err = tx.Exec(ctx, noSetups.With())
			}
			close(made)
			<-commit
			return err
		})
	}()
	<-made
	late, err := u.CreateSetupLink(ctx)
	if err != nil {
		t.Fatal(err)
	}
	let := make(chan error, 1)
	go func() {
		_, err := u.SignUp(ctx, late, user.CreateParams{Email: "eve@example.com", Name: "Eve", Password: good}, first)
		let <- err
	}()
	for waits := 0; waits == 0 && len(let) == 0; {
		if err := d.One(ctx, blocked.With(), &waits); err != nil {
			t.Fatal(err)
		}
	}
	close(commit)
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	is(t, <-let, fault.NotFound)
}

// Requests for an address are limited in any spelling and from any network.
func TestMayAsk(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		var err error
		for i := range 40 {
			email := []byte("ann@example.com")
			email[i%3] ^= byte(i/3%2) << 5
			email[4+i%7] ^= 0x20
			if err = h.ChargeMailRequest(t.Context(), string(email), netip.AddrFrom4([4]byte{198, 51, byte(i), 1})); err != nil {
				break
			}
		}
		is(t, err, fault.RateLimited)
	})
}

// A client with many networks of one site has four times the limit of one network.
func TestMayAskFromASite(t *testing.T) {
	for _, at := range []func(i byte) netip.Addr{
		func(i byte) netip.Addr { return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 1, 0, i}) },
		func(i byte) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, i}) },
	} {
		each(t, func(t *testing.T, h *fixture) {
			taken := 0
			for i := range 100 {
				err := h.ChargeMailRequest(t.Context(), fmt.Sprintf("user-%d@example.com", i), at(byte(i)))
				if err == nil {
					taken++
				} else if !fault.Is(err, fault.RateLimited) {
					t.Fatal(err)
				}
			}
			if taken != 40 {
				t.Errorf("%d requests from %v were taken", taken, at(0))
			}
		})
	}
}

// After a password change no network is known: guesses from networks that used the old password are
// limited as all others.
func TestNewPasswordIsKnownNowhere(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		const other = "Other-Horse-8"
		change := map[string]func(user.Session) error{
			"changed": func(s user.Session) error { return h.ChangePassword(t.Context(), s, good, other) },
			"reset": func(s user.Session) error {
				token, err := h.CreateResetLink(t.Context(), s.User, false)
				if err != nil {
					return err
				}
				return h.ResetPassword(t.Context(), token, other, nil)
			},
			"claimed": func(s user.Session) error {
				if err := h.SendResetLink(t.Context(), s.User); err != nil {
					return err
				}
				return h.ResetPassword(t.Context(), h.token(s.User.Email), other, map[db.ID]bool{first: true})
			},
		}
		for how, f := range change {
			email := how + "@example.com"
			if how == "claimed" {
				h.unproven(email, first)
			} else {
				h.create(email, first)
			}
			s, _ := h.in(email)
			of := []ratelimit.Credential{ratelimit.Credential(fmt.Sprint("user:", int64(s.User.ID)))}
			for i := range 30 {
				at := netip.AddrFrom4([4]byte{203, byte(len(how)), how[0], byte(i)})
				if _, err := h.Logins.Try(t.Context(), at, fmt.Sprint(i), of, func([]ratelimit.Credential) (ratelimit.Credential, error) { return "", nil }); err != nil {
					t.Fatal(err)
				}
			}
			if err := f(s); err != nil {
				t.Fatal(how, err)
			}
			if _, _, err := h.signIn(email, other); !fault.Is(err, fault.RateLimited) {
				t.Errorf("%s: %v", how, err)
			}
		}
	})
}
