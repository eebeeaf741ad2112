// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
)

// sealVersion is the first byte of every sealed value. Version 1 is AES-256-GCM under the purpose's
// sub-key, with a random 96-bit nonce and the purpose as additional data.
const sealVersion = 1

// ErrUnseal says that a sealed value was made with another key or for another purpose, or was
// altered.
var ErrUnseal = errors.New("sealed value: not made with this secret key for this purpose")

// Seal encrypts a secret for storage. Only Open with the same key and purpose decrypts it. The
// result is 29 bytes longer than the secret, and differs each time.
func (k *Key) Seal(purpose string, plaintext []byte) []byte {
	return k.aead(purpose).Seal([]byte{sealVersion}, nil, plaintext, []byte(purpose))
}

// Open returns the secret of a sealed value, or ErrUnseal.
func (k *Key) Open(purpose string, sealed []byte) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != sealVersion {
		return nil, ErrUnseal
	}
	plaintext, err := k.aead(purpose).Open(nil, nil, sealed[1:], []byte(purpose))
	if err != nil {
		return nil, ErrUnseal
	}
	return plaintext, nil
}

func (k *Key) aead(purpose string) cipher.AEAD {
	block, err := aes.NewCipher(k.Subkey("seal " + purpose))
	if err != nil {
		panic("secret: AES refuses a 32-byte key: " + err.Error())
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic("secret: GCM refuses AES: " + err.Error())
	}
	return aead
}
