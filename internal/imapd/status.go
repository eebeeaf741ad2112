// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// statusItems are the items of STATUS that this server offers.
const statusItems = wire.StatusMessages | wire.StatusRecent | wire.StatusUIDNext | wire.StatusUIDValidity |
	wire.StatusUnseen | wire.StatusHighestModSeq | wire.StatusAppendLimit

func (s *session) status(cmd *wire.MailboxStatus) (wire.Code, error) {
	if err := s.checkStatus(cmd.Items); err != nil {
		return "", err
	}
	return "", s.writeStatus(cmd.Mailbox, cmd.Items)
}

// checkStatus refuses items of extensions that are not announced.
func (s *session) checkStatus(items wire.StatusItems) error {
	if items&^statusItems != 0 {
		return bad("This server does not offer that STATUS item.")
	}
	if items&wire.StatusHighestModSeq != 0 {
		s.wantModSeqs()
	}
	return nil
}

func (s *session) writeStatus(name string, items wire.StatusItems) error {
	f, err := s.Folders.Status(s.ctx(), s.box, name)
	if err != nil {
		return err
	}
	s.w.Status(&wire.StatusRow{
		Mailbox: name, Items: items, Messages: f.Messages, Recent: f.Recent, UIDNext: f.UIDNext,
		UIDValidity: f.UIDValidity, Unseen: f.Unseen, HighestModSeq: f.ModSeq, AppendLimit: MaxMessage,
	})
	return nil
}
