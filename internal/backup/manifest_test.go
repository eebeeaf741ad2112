// SPDX-License-Identifier: Apache-2.0

package backup

import "testing"

// No name in a manifest leads out of the data directory, even with a valid HMAC.
func TestNamesInManifest(t *testing.T) {
	for _, name := range []string{"../x", "acme/../../x", "/etc/passwd", "acme/../secret.key", "acme/", "acme//x", "blobs/../x", "blobs/ab/zz", "dev.json", "lock"} {
		if isSmallFile(name) {
			t.Errorf("%q may be in a manifest", name)
		}
	}
	for _, name := range []string{"secret.key", "ca.pem", "ca.key", "acme/account.key", "acme/certs/mail.example.com"} {
		if !isSmallFile(name) {
			t.Errorf("%q may not be in a manifest", name)
		}
	}
}
