// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/xdg-go/scram"
	"github.com/xdg-go/stringprep"

	"github.com/mailstead/mailstead/internal/address"
)

// MechanismSCRAM is the SASL mechanism's name, as servers announce it.
const MechanismSCRAM = "SCRAM-SHA-256"

const (
	// scramIterations is the iteration count: RFC 7677 §4 requires at least 4,096,
	// and some clients reject more than 65,536. A client spends the time (some
	// 20 ms) at each login. It is the same for all names, since a different count
	// would reveal that a name exists.
	scramIterations = 50_000
	scramSaltSize   = 16   // bytes
	maxSCRAMMessage = 2048 // maximum bytes of a client's message
)

// ErrSCRAMMessage says that a client sent an invalid message, or asked for channel binding
// (SCRAM-SHA-256-PLUS), which is not offered.
var ErrSCRAMMessage = errors.New("not a message of SCRAM-SHA-256 that is understood here")

// SCRAM creates and checks verifiers for SCRAM-SHA-256 (RFC 5802, RFC 7677). They are weaker than
// argon2id: a thief can guess thousands of times faster. So it is optional for the operator, and a
// nil *SCRAM creates no verifiers and offers nothing.
//
// The salt is derived from Key and the name that signs in. So unknown names also have one, always
// the same. And all passwords of a name have the same salt, as the exchange only shows at the end
// which of them the client used.
type SCRAM struct {
	Hasher  *Hasher
	Key     []byte // secret, the same on all nodes, and permanent
	Offered bool   // if false, verifiers are still stored, for when it is offered
}

// IsOffered reports whether clients may use SCRAM-SHA-256.
func (s *SCRAM) IsOffered() bool { return s != nil && s.Offered }

// Verifiers returns the verifiers to store for the spellings of a name's password, in the form of
// RFC 5803 §2 and separated by blanks. It fails as Hasher.Hash does.
func (s *SCRAM) Verifiers(ctx context.Context, by Requester, name string, spellings ...string) (string, error) {
	if s == nil {
		return "", nil
	}
	var all []string
	for _, password := range preparedForms(spellings) {
		release, err := s.Hasher.Acquire(ctx, by)
		if err != nil {
			return "", err
		}
		v, err := newVerifier(password, s.keyFactors(name))
		release()
		if err != nil {
			return "", err
		}
		all = append(all, v)
	}
	return strings.Join(all, " "), nil
}

// NeedsVerifiers reports whether a name's verifiers must be created: there are none stored, or they
// have other parameters.
func (s *SCRAM) NeedsVerifiers(name, stored string) bool {
	return s != nil && !strings.HasPrefix(stored, verifierPrefix(s.keyFactors(name)))
}

// keyFactors returns the salt and iteration count for a name's passwords.
func (s *SCRAM) keyFactors(name string) scram.KeyFactors {
	h := hmac.New(sha256.New, s.Key)
	h.Write([]byte(address.KeyOf(name)))
	return scram.KeyFactors{Salt: string(h.Sum(nil)[:scramSaltSize]), Iters: scramIterations}
}

// preparedForms returns the forms that clients may make of a password: SASLprep, which RFC 5802
// §5.1 requires and which knows no letters newer than 2002, or the form of normalize.
func preparedForms(spellings []string) (list []string) {
	for _, password := range spellings {
		list = append(list, normalize(password))
		if prepared, err := stringprep.SASLprep.Prepare(password); err == nil {
			list = append(list, prepared)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// newVerifier returns the verifier of one form of a password.
func newVerifier(password string, f scram.KeyFactors) (string, error) {
	c, err := scram.SHA256.NewClientUnprepped("", password, "")
	if err != nil {
		return "", err
	}
	keys, err := c.GetStoredCredentialsWithError(f)
	return verifierPrefix(f) + base64.StdEncoding.EncodeToString(keys.StoredKey) + ":" + base64.StdEncoding.EncodeToString(keys.ServerKey), err
}

// verifierPrefix returns the prefix of all verifiers with these factors.
func verifierPrefix(f scram.KeyFactors) string {
	return MechanismSCRAM + "$" + strconv.Itoa(f.Iters) + ":" + base64.StdEncoding.EncodeToString([]byte(f.Salt)) + "$"
}

// SCRAMExchange is the server's side of a SCRAM-SHA-256 login.
type SCRAMExchange struct {
	User      string // name that signs in, as the client wrote it
	AuthzID   string // name that the client wants to act for; "" for its own
	Challenge string // server's first message

	clientFirst string // the client's first message
	nonce       string // server's part of the nonce
	factors     func(name string) scram.KeyFactors
}

// Begin parses the client's first message. It accesses no stored data. Its error is
// ErrSCRAMMessage.
func (s *SCRAM) Begin(first string) (*SCRAMExchange, error) {
	e := &SCRAMExchange{clientFirst: first, nonce: rand.Text(), factors: s.keyFactors}
	return e, e.start()
}

func (e *SCRAMExchange) start() error {
	if len(e.clientFirst) > maxSCRAMMessage {
		return ErrSCRAMMessage
	}
	c, challenge, err := e.replay(nil, nil)
	if err != nil {
		return ErrSCRAMMessage
	}
	e.User, e.AuthzID, e.Challenge = c.Username(), c.AuthzID(), challenge
	return nil
}

// CheckFinalWithoutProof returns ErrSCRAMMessage if the client's last message does not belong to
// the exchange. It does not check the password.
func (e *SCRAMExchange) CheckFinalWithoutProof(final string) error {
	c, _, err := e.replay(nil, nil)
	if err != nil || len(final) > maxSCRAMMessage {
		return ErrSCRAMMessage
	}
	if why, _ := c.Step(final); why != scram.ErrInvalidProof { // without keys no proof is valid
		return ErrSCRAMMessage
	}
	return nil
}

// Verify reports whether the client's last message proves the password of one of the verifiers. It
// returns the answer that proves to the client that the server knows the password too.
func (e *SCRAMExchange) Verify(final, verifiers string) (answer string, ok bool) {
	for v := range strings.FieldsSeq(verifiers) {
		keys, ours := strings.CutPrefix(v, verifierPrefix(e.factors(e.User)))
		stored, server, pair := strings.Cut(keys, ":")
		storedKey, errStored := base64.StdEncoding.DecodeString(stored)
		serverKey, errServer := base64.StdEncoding.DecodeString(server)
		if !ours || !pair || errStored != nil || errServer != nil {
			continue
		}
		c, _, err := e.replay(storedKey, serverKey)
		if err != nil {
			continue
		}
		if answer, _ = c.Step(final); c.Valid() {
			return answer, true
		}
	}
	return "", false
}

// replay runs the library's conversation up to the challenge, with the keys of one verifier. As a
// conversation only checks one, Verify replays it for each.
func (e *SCRAMExchange) replay(storedKey, serverKey []byte) (c *scram.ServerConversation, challenge string, err error) {
	server, err := scram.SHA256.NewServer(func(user string) (scram.StoredCredentials, error) {
		return scram.StoredCredentials{KeyFactors: e.factors(user), StoredKey: storedKey, ServerKey: serverKey}, nil
	})
	if err != nil {
		return nil, "", err
	}
	c = server.WithNonceGenerator(func() string { return e.nonce }).NewConversation()
	challenge, err = c.Step(e.clientFirst)
	return c, challenge, err
}
