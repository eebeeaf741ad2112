// SPDX-License-Identifier: Apache-2.0

package user_test

import (
	"errors"
	"fmt"
	"net/netip"
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

// enrolled creates ann with a second factor, and returns a function for the next code.
func (h *fixture) enrolled() (ann user.User, code func() string) {
	h.t.Helper()
	ann = h.create("ann@example.com", first)
	e, err := h.NewEnrolment(ann)
	if err != nil {
		h.t.Fatal(err)
	}
	code = func() string {
		h.forward(30 * time.Second)
		c, err := totp.GenerateCode(e.Secret, h.clock())
		if err != nil {
			h.t.Fatal(err)
		}
		return c
	}
	if _, err := h.EnableTOTP(h.t.Context(), ann, e.Secret, code()); err != nil {
		h.t.Fatal(err)
	}
	return ann, code
}

// halfway signs ann in from the nth network, up to the second factor.
func (h *fixture) halfway(n int) user.Session {
	h.t.Helper()
	s, _, err := h.SignIn(h.t.Context(), "ann@example.com", good, netip.AddrFrom4([4]byte{198, 51, 100, byte(n)}), "")
	if err != nil || !s.NeedsSecondFactor {
		h.t.Fatalf("%+v %v", s, err)
	}
	return s
}

func isCode(t *testing.T, err error, code string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != code {
		t.Fatalf("got %v, want %s", err, code)
	}
}

// A session ends with its fifth wrong code, even with a right one in between.
func TestCodesOfASession(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		ann, code := h.enrolled()
		s := h.halfway(1)
		for i := range 4 {
			is(t, h.VerifySecondFactor(ctx, s, fmt.Sprint("wrong", i)), fault.Invalid)
		}
		isCode(t, h.VerifySecondFactor(ctx, s, "wrong"), "too_many_codes")
		if list, err := h.Sessions(ctx, ann.ID); err != nil || len(list) != 0 {
			t.Fatalf("%d sessions are left, %v", len(list), err)
		}
		s = h.halfway(2)
		is(t, h.VerifySecondFactor(ctx, s, "wrong"), fault.Invalid)
		if err := h.VerifySecondFactor(ctx, s, code()); err != nil {
			t.Fatal(err)
		}
		for i := range 3 { // the wrong one before no longer counts
			is(t, h.DisableTOTP(ctx, s, fmt.Sprint("wrong", i)), fault.Invalid)
		}
		// The user has one attempt left, and a right code is refunded.
		for range 3 {
			_, err := h.ReplaceRecoveryCodes(ctx, s, code())
			if err != nil {
				t.Fatal(err)
			}
		}
		if may, err := h.ShouldWarnOfWrongCodes(ctx, ann.ID); !may || err != nil {
			t.Error(may, err)
		}
		if may, err := h.ShouldWarnOfWrongCodes(ctx, ann.ID); may || err != nil {
			t.Error(may, err)
		}
	})
}

// Wrong passwords, of which anybody can send many, don't displace wrong codes in the audit log.
func TestWrongCodesAreNoted(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		ann, _ := h.enrolled()
		log := &audit.Log{DB: h.DB, Now: h.clock}
		for range 20 {
			err := log.RecordDenied(ctx, audit.Entry{Account: first, Action: "sign-in", Object: ann.ID.String(), Description: "Failed to sign in: wrong password."})
			if err != nil {
				t.Fatal(err)
			}
		}
		is(t, h.VerifySecondFactor(ctx, h.halfway(1), "wrong"), fault.Invalid)
		if err := h.FlushFailedSignIns(ctx); err != nil {
			t.Fatal(err)
		}
		list, _, err := log.List(ctx, first, db.Page{Limit: 1})
		if err != nil || len(list) != 1 || list[0].Action != "sign-in.code" || list[0].Description != "Gave a wrong code of the second factor." {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

var triesOf = db.SQL(`SELECT CAST(COALESCE(SUM(tries), 0) AS BIGINT) FROM dashboard_session`)

// An attacker who knows the password may open many sessions, from many networks, and try many codes
// concurrently. Only ten are checked, and one more every quarter of an hour.
func TestCodesOfAUser(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		_, code := h.enrolled()
		var sessions []user.Session
		for n := range 40 {
			sessions = append(sessions, h.halfway(n))
		}
		burst := func() (looked int64) {
			var wrong, ended atomic.Int64
			var wg sync.WaitGroup
			begin := make(chan struct{})
			for i := range 360 {
				wg.Go(func() {
					<-begin
					err := h.VerifySecondFactor(ctx, sessions[i%len(sessions)], fmt.Sprint("wrong", i))
					switch {
					case fault.Is(err, fault.Invalid):
						wrong.Add(1)
					case fault.Is(err, fault.RateLimited):
						ended.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			close(begin)
			wg.Wait()
			if wrong.Load()+ended.Load() != 360 {
				t.Errorf("%d wrong, %d limited", wrong.Load(), ended.Load())
			}
			return wrong.Load()
		}
		// None of forty sessions reaches its own limit of five first.
		if n := burst(); n > 10 || n < 5 {
			t.Errorf("%d of 360 codes were looked at", n)
		}
		var tries int64
		if err := h.DB.One(ctx, triesOf.With(), &tries); err != nil || tries > 10 {
			t.Errorf("%d tries are counted in sessions: %v", tries, err)
		}
		isCode(t, h.VerifySecondFactor(ctx, sessions[0], code()), "too_many_codes")
		h.forward(15 * time.Minute)
		s := h.halfway(50)
		if err := h.VerifySecondFactor(ctx, s, code()); err != nil {
			t.Errorf("a quarter of an hour later: %v", err)
		}
	})
}

// Of many concurrent uses of the same code, one succeeds.
func TestOneCodeAtOnce(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		_, code := h.enrolled()
		var sessions []user.Session
		for n := range 8 {
			sessions = append(sessions, h.halfway(n))
		}
		c := code()
		var in atomic.Int64
		var wg sync.WaitGroup
		for _, s := range sessions {
			wg.Go(func() {
				if h.VerifySecondFactor(t.Context(), s, c) == nil {
					in.Add(1)
				}
			})
		}
		wg.Wait()
		if in.Load() != 1 {
			t.Errorf("%d are in", in.Load())
		}
	})
}

var (
	hideAudit = db.SQL(`ALTER TABLE dashboard_audit RENAME TO dashboard_audit_hidden`)
	showAudit = db.SQL(`ALTER TABLE dashboard_audit_hidden RENAME TO dashboard_audit`)
)

// A sign-in that can't be recorded fails, both by password and by code.
func TestSignInIsRecorded(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := t.Context()
		bob := h.create("bob@example.com", first)
		ann, code := h.enrolled()
		s := h.halfway(1)
		dbtest.Exec(t, h.DB, hideAudit.With())
		if got, _, err := h.SignIn(ctx, bob.Email, good, home, ""); err == nil {
			t.Errorf("signed in: %+v", got)
		}
		if all, err := h.Sessions(ctx, bob.ID); err != nil || len(all) != 0 {
			t.Errorf("there are sessions: %v, %v", all, err)
		}
		if err := h.VerifySecondFactor(ctx, s, code()); err == nil {
			t.Error("confirmed")
		}
		dbtest.Exec(t, h.DB, showAudit.With())
		if all, err := h.Sessions(ctx, ann.ID); err != nil || len(all) != 1 || !all[0].NeedsSecondFactor {
			t.Errorf("the session is now %v, %v", all, err)
		}
		if err := h.VerifySecondFactor(ctx, s, code()); err != nil {
			t.Fatal(err)
		}
		list, _, err := (&audit.Log{DB: h.DB, Now: h.clock}).List(ctx, first, db.Page{})
		if err != nil || len(list) == 0 || list[0].Description != "Signed in." {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
