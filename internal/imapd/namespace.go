// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// separator separates the levels of a folder's name.
const separator = folder.Separator

func (s *session) namespace() (wire.Code, error) {
	s.w.PersonalNamespace(separator)
	return "", nil
}
