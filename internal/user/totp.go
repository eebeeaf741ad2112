// SPDX-License-Identifier: Apache-2.0

package user

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base32"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/totp"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/secret"
)

// The second factor is a time-based code (RFC 6238: SHA-1, six digits, 30 s, as in all
// authenticator apps), which is valid once, or a recovery code if the phone is lost.

const (
	totpPurpose   = "dashboard totp"
	totpStep      = 30 // seconds
	totpSkewSteps = 1  // allowed clock difference in steps
	recoveryCodes = 10

	// A session ends with its last allowed wrong code. A user may send some wrong codes at once,
	// then one more every quarter of an hour. An attacker, who must know the password, needs over
	// five years for an even chance.
	codesPerSession    = 5
	codesPerUser       = 10
	codeRefillInterval = 15 * time.Minute
)

var (
	setTOTPQuery            = db.SQL(`UPDATE dashboard_user SET totp = $2, totp_step = $3 WHERE id = $1 AND totp IS NULL`)
	clearTOTPQuery          = db.SQL(`UPDATE dashboard_user SET totp = NULL, totp_step = 0 WHERE id = $1`)
	consumeStepQuery        = db.SQL(`UPDATE dashboard_user SET totp_step = $2 WHERE id = $1 AND totp_step < $2`)
	clearRecoveryQuery      = db.SQL(`DELETE FROM dashboard_recovery_code WHERE person = $1`)
	addRecoveryQuery        = db.SQL(`INSERT INTO dashboard_recovery_code (person, hash) VALUES ($1, $2)`)
	consumeRecoveryQuery    = db.SQL(`DELETE FROM dashboard_recovery_code WHERE person = $1 AND hash = $2`)
	takeTryQuery            = db.SQL(`UPDATE dashboard_session SET tries = tries + 1 WHERE id = $1 AND tries < $2 RETURNING tries`)
	resetTriesQuery         = db.SQL(`UPDATE dashboard_session SET tries = 0 WHERE id = $1`)
	deleteTriedSessionQuery = db.SQL(`DELETE FROM dashboard_session WHERE id = $1 AND tries >= $2`)
	countRecoveryQuery      = db.SQL(`SELECT COUNT(*) FROM dashboard_recovery_code WHERE person = $1`)
)

// TOTPEnrolment is a second factor that is being set up. Nothing is stored until EnableTOTP.
type TOTPEnrolment struct {
	Secret string // base32, to type in
	URL    string // otpauth://…, to scan
}

// NewEnrolment generates an enrolment.
func (u *Users) NewEnrolment(who User) (TOTPEnrolment, error) {
	return u.enrol(who, nil)
}

// ParseEnrolment returns the enrolment for a secret that NewEnrolment generated.
func (u *Users) ParseEnrolment(who User, text string) (TOTPEnrolment, error) {
	raw, err := decodeSecret(text)
	if err != nil {
		return TOTPEnrolment{}, err
	}
	return u.enrol(who, raw)
}

// enrol returns the enrolment with a secret; nil: a new one.
func (u *Users) enrol(who User, raw []byte) (TOTPEnrolment, error) {
	key, err := totp.Generate(totp.GenerateOpts{Issuer: u.Issuer, AccountName: who.Email, Period: totpStep, Secret: raw, Rand: rand.Reader})
	if err != nil {
		return TOTPEnrolment{}, err
	}
	return TOTPEnrolment{Secret: key.Secret(), URL: key.URL()}, nil
}

// EnableTOTP turns on the second factor, with one of its codes as proof. It returns the recovery
// codes, which are shown once. A wrong code is a fault of the field "code".
func (u *Users) EnableTOTP(ctx context.Context, who User, text, code string) (recovery []string, err error) {
	if _, err := decodeSecret(text); err != nil {
		return nil, err
	}
	step, ok := u.findTimeStep(text, code)
	if !ok {
		return nil, wrongCodeError()
	}
	recovery, hashes := generateRecoveryCodes()
	err = u.DB.Tx(ctx, func(tx *db.Tx) error {
		on := fault.New(fault.Conflict, "already_on", "A second factor is on already.")
		if err := tx.ExecOrFail(ctx, setTOTPQuery.With(who.ID, u.Key.Seal(totpPurpose, []byte(text)), step), on); err != nil {
			return err
		}
		return tx.Run(ctx, recoveryCodeStatements(who.ID, hashes)...)
	})
	return recovery, err
}

// DisableTOTP turns off the second factor. It requires a code or a recovery code.
func (u *Users) DisableTOTP(ctx context.Context, in Session, code string) error {
	if err := u.verifyCode(ctx, in, code); err != nil {
		return err
	}
	return u.DB.Run(ctx, clearTOTPQuery.With(in.User.ID), clearRecoveryQuery.With(in.User.ID))
}

// ReplaceRecoveryCodes replaces the recovery codes. It requires a code.
func (u *Users) ReplaceRecoveryCodes(ctx context.Context, in Session, code string) ([]string, error) {
	if err := u.verifyCode(ctx, in, code); err != nil {
		return nil, err
	}
	codes, hashes := generateRecoveryCodes()
	return codes, u.DB.Run(ctx, recoveryCodeStatements(in.User.ID, hashes)...)
}

// CountRecoveryCodes returns the number of unused recovery codes.
func (u *Users) CountRecoveryCodes(ctx context.Context, id db.ID) (n int64, err error) {
	return n, u.DB.One(ctx, countRecoveryQuery.With(id), &n)
}

// VerifySecondFactor completes a session with NeedsSecondFactor, by a code or a recovery code. It
// returns fault.Unauthenticated if the session has ended meanwhile.
func (u *Users) VerifySecondFactor(ctx context.Context, in Session, code string) error {
	if err := u.verifyCode(ctx, in, code); err != nil {
		return err
	}
	return u.DB.Tx(ctx, func(tx *db.Tx) error {
		complete := completeSessionQuery.With(in.ID, db.Micros(u.Now().Add(sessionIdleTimeout)))
		if err := tx.ExecOrFail(ctx, complete, signedOutError()); err != nil {
			return err
		}
		return u.auditSignIn(ctx, tx, in)
	})
}

// verifyCode verifies and consumes a code, or a recovery code, of the session's user. Each code is
// accepted once. An attempt is charged to the limits of the user and of the session before the code
// is checked, and refunded if it was right. So concurrent attempts, from any network and on any
// node, can't exceed the limits.
func (u *Users) verifyCode(ctx context.Context, in Session, code string) error {
	giveBack, err := u.Logins.Take(ctx, ratelimit.Limit{Credential: credentialOf("factor", in.User.ID), Burst: codesPerUser, Interval: codeRefillInterval})
	if fault.Is(err, fault.RateLimited) {
		return tooManyCodesError(err)
	}
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // the charge must be either counted or refunded
	var tries int64
	err = u.DB.Tx(ctx, func(tx *db.Tx) error { return tx.One(ctx, takeTryQuery.With(in.ID, codesPerSession), &tries) })
	if errors.Is(err, db.ErrNoRow) {
		return cmp.Or(giveBack(ctx), tooManyCodesError(nil))
	}
	if err != nil {
		return err
	}
	s, err := u.findUser(ctx, userByIDQuery.With(in.User.ID))
	if err != nil {
		return err
	}
	ok, err := u.consumeCode(ctx, s, code)
	switch {
	case err != nil:
		return err
	case ok:
		return cmp.Or(u.DB.Run(ctx, resetTriesQuery.With(in.ID)), giveBack(ctx))
	}
	u.queueFailedSignIn(in.User, in.RemoteAddr, actionCodeFailed, "Gave a wrong code of the second factor.")
	if tries < codesPerSession {
		return wrongCodeError()
	}
	return cmp.Or(u.DB.Run(ctx, deleteTriedSessionQuery.With(in.ID, codesPerSession)), tooManyCodesError(nil))
}

// credentialOf returns the login limiter's name for a credential of a user.
func credentialOf(what string, user db.ID) ratelimit.Credential {
	return ratelimit.Credential(what + ":" + strconv.FormatInt(int64(user), 10))
}

// tooManyCodesError is the fault of a session or user with too many wrong codes.
func tooManyCodesError(limited error) error {
	f := fault.New(fault.RateLimited, "too_many_codes", "There were too many wrong codes. Sign in again later. If they were not yours, somebody knows your password: choose another.")
	if why, ok := errors.AsType[*fault.Error](limited); ok {
		f.RetryAfter = why.RetryAfter
	}
	return f
}

// ShouldWarnOfWrongCodes reports whether to warn a user now of too many wrong codes: once a day.
func (u *Users) ShouldWarnOfWrongCodes(ctx context.Context, id db.ID) (bool, error) {
	_, err := u.Logins.Take(ctx, ratelimit.Limit{Credential: credentialOf("factor warning", id), Burst: 1, Interval: 24 * time.Hour})
	if fault.Is(err, fault.RateLimited) {
		return false, nil
	}
	return err == nil, err
}

// consumeCode marks a code as used, and reports whether it was valid.
func (u *Users) consumeCode(ctx context.Context, s storedUser, code string) (ok bool, err error) {
	if s.totp == nil {
		return false, nil
	}
	text, err := u.Key.Open(totpPurpose, s.totp)
	if err != nil {
		return false, err
	}
	statement := consumeRecoveryQuery.With(s.ID, secret.HashToken(normalizeCode(code)))
	if step, right := u.findTimeStep(string(text), code); right {
		statement = consumeStepQuery.With(s.ID, step)
	}
	n, err := u.DB.Exec(ctx, statement)
	return n > 0, err
}

// findTimeStep finds the time step of a code.
func (u *Users) findTimeStep(text, code string) (step int64, ok bool) {
	code = normalizeCode(code)
	now := u.Now().Unix() / totpStep
	for step := now - totpSkewSteps; step <= now+totpSkewSteps; step++ {
		want, err := totp.GenerateCodeCustom(text, time.Unix(step*totpStep, 0), totp.ValidateOpts{Period: totpStep, Digits: otp.DigitsSix, Algorithm: otp.AlgorithmSHA1})
		if err == nil && subtle.ConstantTimeCompare([]byte(want), []byte(code)) == 1 {
			return step, true
		}
	}
	return 0, false
}

func wrongCodeError() error {
	var bad fault.FieldErrors
	bad.Add("code", "wrong", "This code is wrong, or was used already. Wait for the next one and try again.")
	return bad.Err()
}

// normalizeCode converts a code to lower case and removes spaces and hyphens.
func normalizeCode(s string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(s))
}

func generateRecoveryCodes() (codes []string, hashes [][]byte) {
	for range recoveryCodes {
		code := strings.ToLower(rand.Text())[:10]
		codes = append(codes, code[:5]+"-"+code[5:])
		hashes = append(hashes, secret.HashToken(code))
	}
	return codes, hashes
}

func recoveryCodeStatements(who db.ID, hashes [][]byte) []db.Statement {
	all := []db.Statement{clearRecoveryQuery.With(who)}
	for _, h := range hashes {
		all = append(all, addRecoveryQuery.With(who, h))
	}
	return all
}

// decodeSecret decodes the base32 secret of an authenticator.
func decodeSecret(text string) ([]byte, error) {
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(text))
	if err != nil || len(raw) < 10 || len(raw) > 64 {
		return nil, fault.New(fault.Invalid, "invalid_secret", "Begin again: the secret is damaged.")
	}
	return raw, nil
}
