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

// MechanismSCRAM is the name of what SCRAM does, as doors announce it.
const MechanismSCRAM = "SCRAM-SHA-256"

const (
	// scramIterations is how often a password is hashed: RFC 7677 §4 asks for 4,096
	// at least, and more than 65,536 some clients refuse. A client pays for it
	// at each log-in (some 20 ms). It is one number for all, since a name with
	// another one would be known to exist.
	scramIterations = 50_000
	scramSaltSize   = 16   // bytes
	maxSCRAMMessage = 2048 // bytes of a client's message
)

// ErrSCRAMMessage is what a client sends that is no message of the exchange in hand, or
// asks for a binding to the channel (SCRAM-SHA-256-PLUS), which is not offered.
var ErrSCRAMMessage = errors.New("not a message of SCRAM-SHA-256 that is understood here")

// SCRAM makes and tests verifiers for SCRAM-SHA-256 (RFC 5802, RFC 7677). They
// are weaker than argon2id: who steals them guesses thousands of times faster.
// So it is the operator's option, and a nil *Scram makes none and offers nothing.
//
// A salt follows from Key and the name that signs in. So names that are not here
// have one too, always the same; and all passwords of a name have the same salt,
// though the exchange shows only afterwards which of them was meant.
type SCRAM struct {
	Hasher  *Hasher
	Key     []byte // secret, the same on all nodes and for ever
	Offered bool   // false: verifiers are kept, so that they are there once it is
}

// Offers reports whether clients may use it.
func (s *SCRAM) Offers() bool { return s != nil && s.Offered }

// Verifiers returns what to store for a name's password, of which several
// spellings may be given, in the form of RFC 5803 §2 and separated by blanks. It
// fails as Hasher.Hash does.
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

// NeedsVerifiers reports whether what is stored for a name's password has to be made
// (again): there is nothing, or what there is was made in another way.
func (s *SCRAM) NeedsVerifiers(name, stored string) bool {
	return s != nil && !strings.HasPrefix(stored, verifierPrefix(s.keyFactors(name)))
}

// keyFactors are what a name's passwords are hashed with.
func (s *SCRAM) keyFactors(name string) scram.KeyFactors {
	h := hmac.New(sha256.New, s.Key)
	h.Write([]byte(address.KeyOf(name)))
	return scram.KeyFactors{Salt: string(h.Sum(nil)[:scramSaltSize]), Iters: scramIterations}
}

// preparedForms are what clients may make of a password: SASLprep, which RFC 5802 §5.1
// asks for and which knows no letters newer than 2002, or what it is here.
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

// newVerifier is what is stored of one form of a password.
func newVerifier(password string, f scram.KeyFactors) (string, error) {
	c, err := scram.SHA256.NewClientUnprepped("", password, "")
	if err != nil {
		return "", err
	}
	keys, err := c.GetStoredCredentialsWithError(f)
	return verifierPrefix(f) + base64.StdEncoding.EncodeToString(keys.StoredKey) + ":" + base64.StdEncoding.EncodeToString(keys.ServerKey), err
}

// verifierPrefix is how each verifier made with f begins.
func verifierPrefix(f scram.KeyFactors) string {
	return MechanismSCRAM + "$" + strconv.Itoa(f.Iters) + ":" + base64.StdEncoding.EncodeToString([]byte(f.Salt)) + "$"
}

// SCRAMExchange is the server's side of signing in by SCRAM-SHA-256.
type SCRAMExchange struct {
	User      string // who signs in, as the client wrote it
	AuthzID   string // whom the client wants to act for; "" for itself
	Challenge string // what the client is to answer

	clientFirst string // the client's first message
	nonce       string // our part
	factors     func(name string) scram.KeyFactors
}

// Begin takes the client's first message. It looks nothing up. Its error is
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

// CheckFinal returns ErrSCRAMMessage if the client's last message does not belong to the
// exchange. Whether it proves a password, it does not say.
func (e *SCRAMExchange) CheckFinal(final string) error {
	c, _, err := e.replay(nil, nil)
	if err != nil || len(final) > maxSCRAMMessage {
		return ErrSCRAMMessage
	}
	if why, _ := c.Step(final); why != scram.ErrInvalidProof { // without a key nothing is proved
		return ErrSCRAMMessage
	}
	return nil
}

// Verify reports whether the client's last message proves the password that
// verifiers are stored of, and returns the answer by which the client learns
// that we know it too.
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

// replay returns the library's side of the exchange, up to our challenge, with
// the keys of one password: it tests one only, so it is run for each.
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
