// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"encoding/csv"
	"mime"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// label is the meaning of a label in Google's export.
type label int

const (
	labelUser label = iota
	labelInbox
	labelSent
	labelDrafts
	labelSpam
	labelTrash
	labelUnread
	labelStarred
	labelArchived
	labelIgnored // says nothing that is stored
)

// labelNames are Gmail's own labels, which the export writes in the account's language. They
// include former names.
//
//nolint:misspell // they are in many languages
var labelNames = map[label]string{
	labelInbox: `Inbox|Posteingang|Boîte de réception|Recibidos|Bandeja de entrada|Posta in arrivo|Caixa de entrada|Entrada|Recebidos|A receber|Postvak IN|Postvak In|Inkorgen|Inkorg|Indbakke|Innboks|Innboksen|Saapuneet|Postilaatikko|
		Odebrane|Doručená pošta|Doručené|Přijaté|Prijaté|Beérkező levelek|Beérkezett üzenetek|Mesaje primite|Primite|Inbox (Primite)|Входящие|Вхідні|Входящи|Входяща поща|Gelen Kutusu|Gelen kutusu|Εισερχόμενα|البريد الوارد|صندوق الوارد|الوارد|דואר נכנס|صندوق ورودی|
		受信トレイ|받은편지함|收件箱|收件匣|กล่องจดหมาย|กล่องขาเข้า|Hộp thư đến|Kotak Masuk|Kotak masuk|Peti masuk|इनबॉक्स|Safata d'entrada|Primljena pošta|Pristigla pošta|Prejeto|Prejeta pošta|Примљено|Пријемно сандуче|Gautieji|Gauti laiškai|Iesūtne|Postkast|Sisendkaust|Innhólf`,
	labelSent: `Sent|Sent Mail|Gesendet|Gesendete Nachrichten|Messages envoyés|Envoyés|Envoyé|Enviados|Enviado|Inviati|Inviata|Posta inviata|E-mails enviados|Enviadas|Correio enviado|Verzonden|Verzonden berichten|Skickat|Skickade|Skickade meddelanden|Sendt|Sendte|Sendte mails|Sendt e-post|Lähetetyt|Lähetetty|
		Wysłane|Odeslaná pošta|Odeslané|Odoslané|Odoslaná pošta|Elküldött levelek|Elküldött üzenetek|Elküldött|Mesaje trimise|Trimise|Отправленные|Надіслані|Відіслані|Изпратени|Изпратена поща|Gönderilmiş Postalar|Gönderilenler|Gönderilmiş|Απεσταλμένα|Σταλμένα|البريد المرسل|الرسائل المرسلة|المرسلة|المرسل|بريد مرسل|נשלח|דואר יוצא|ارسال شده|ارسالشده|
		送信済みメール|送信済み|보낸편지함|보낸메일함|已发送邮件|已发送|已傳送郵件|已傳送|寄件備份|寄件匣|จดหมายที่ส่งแล้ว|ส่งแล้ว|Thư đã gửi|Đã gửi|Terkirim|Surat Terkirim|Dihantar|Mel dihantar|भेजे गए|भेजा गया|भेजी गई मेल|Enviats|Missatges enviats|Poslano|Poslana pošta|Послато|Послате поруке|Išsiųsti laiškai|Išsiųsti|Nosūtītās vēstules|Nosūtītie|Nosūtīts|Saadetud kirjad|Saadetud|Sendur póstur`,
	labelDrafts: `Drafts|Draft|Entwürfe|Entwurf|Brouillons|Brouillon|Borradores|Borrador|Bozze|Bozza|Rascunhos|Rascunho|Concepten|Concept|Utkast|Kladder|Kladde|Luonnokset|Luonnos|
		Wersje robocze|Robocze|Koncepty|Piszkozatok|Piszkozat|Mesaje nefinalizate|Ciorne|Schițe|Черновики|Чернетки|Чернови|Taslaklar|Taslak|Πρόχειρα|المسودات|مسودات|טיוטות|پیشنویسها|پیش نویس ها|
		下書き|임시보관함|임시보관|草稿|草稿箱|ร่างจดหมาย|ร่าง|จดหมายร่าง|Thư nháp|Bản nháp|Draf|Draft surat|ड्राफ़्ट|ड्राफ्ट|Esborranys|Skice|Osnutki|Недовршене|Нацрти|Juodraščiai|Melnraksti|Mustandid|Drög`,
	labelSpam: `Spam|Junk|Pourriel|Pourriels|Correo no deseado|Søppelpost|Skräppost|Roskaposti|Nevyžádaná pošta|Levélszemét|Спам|Нежелана поща|İstenmeyen E-posta|Istenmeyen E-posta|İstenmeyen|Gereksiz|Ανεπιθύμητα|Ανεπιθύμητη αλληλογραφία|
		الرسائل غير المرغوب فيها|غير مرغوب فيها|البريد غير المرغوب فيه|رسائل غير مرغوب فيها|ספאם|דואר זבל|هرزنامه|迷惑メール|스팸함|스팸|垃圾邮件|垃圾郵件|จดหมายขยะ|สแปม|Thư rác|Rác|स्पैम|Correu brossa|Neželena pošta|Vsiljena pošta|Непожељне|Šlamštas|Mēstules|Surogātpasts|Rämpspost|Ruslpóstur`,
	labelTrash: `Trash|Bin|Deleted|Papierkorb|Gelöscht|Corbeille|Papelera|Eliminados|Cestino|Lixeira|Lixo|Reciclagem|Prullenbak|Papperskorgen|Papperskorg|Papirkurv|Papirkurven|Papperikori|Roskakori|
		Kosz|Koš|Kôš|Kuka|Lomtár|Coș de gunoi|Coş de gunoi|Coș|Корзина|Кошик|Кошче|Çöp Kutusu|Çöp|Κάδος απορριμμάτων|Κάδος|المهملات|سلة المهملات|אשפה|زبالهدان|سطل زباله|حذفشدهها|
		ゴミ箱|휴지통|已删除邮件|已删除|垃圾桶|回收站|ถังขยะ|Thùng rác|Sampah|Tong Sampah|ट्रैश|रद्दी|Paperera|Smeće|Otpad|Koš za smeti|Smetnjak|Смеће|Отпад|Šiukšliadėžė|Šiukšlinė|Atkritne|Miskaste|Prügikast|Rusl`,
	labelUnread: `Unread|Ungelesen|Non lus|Non lu|Messages non lus|No leídos|No leído|Sin leer|Da leggere|Non letti|Non letto|Non letta|Não lidas|Não lidos|Não lida|Não lido|Ongelezen|Olästa|Oläst|Ulæst|Ulæste|Ulest|Uleste|Lukematta|Lukemattomat|Lukematon|
		Nieprzeczytane|Nieprzeczytana|Nepřečtené|Nepřečteno|Neprečítané|Olvasatlan|Necitite|Necitit|Непрочитанные|Непрочитанное|Непрочитані|Непрочетени|Непрочетено|Okunmamış|Okunmadı|Μη αναγνωσμένα|Μη αναγνωσμένο|Αδιάβαστα|غير مقروءة|غير المقروءة|غير مقروء|לא נקראו|לא נקרא|שלא נקראו|خوانده نشده|خواندهنشده|
		未読|읽지않음|읽지 않음|안읽음|未读|未读邮件|未讀|未讀取|ยังไม่ได้อ่าน|ยังไม่อ่าน|Chưa đọc|Thư chưa đọc|Belum dibaca|Belum Dibaca|अपठित|No llegits|No llegit|Nepročitano|Nepročitane|Neprebrano|Neprebrana|Непрочитане|Непрочитано|Neskaityti|Neskaityta|Nelasītas|Nelasīts|Lugemata|Ólesið`,
	labelStarred: `Starred|Markiert|Mit Stern|Suivis|Suivi|Messages suivis|Destacados|Destacado|Speciali|Con stella|Con estrella|Com estrela|Marcados com estrela|Com Estrela|Favoritos|Met ster|Stjärnmärkta|Stjärnmärkt|Stjernemarkeret|Stjernemerket|Stjernemerkede|Tähdelliset|Tähdellä merkityt|
		Oznaczone gwiazdką|Z gwiazdką|S hvězdičkou|Se hvězdičkou|S hviezdičkou|Csillagozott|Cu stea|Помеченные|Отмеченные|Із зірочкою|Позначені зірочкою|Със звезда|Yıldızlı|Με αστέρι|Με αστέρια|مميزة بنجمة|المميّزة بنجمة|المميزة بنجمة|מסומן בכוכב|מסומנים בכוכב|ستارهدار|
		スター付き|별표편지함|별표|已加星标|已加星號|ติดดาว|ที่ติดดาว|Có gắn dấu sao|Được gắn dấu sao|Gắn dấu sao|Berbintang|तारांकित|Destacats|Amb estrella|Označeno zvjezdicom|Z zvezdico|Са звездицом|Pažymėti žvaigždute|Su žvaigždute|Ar zvaigznīti|Tärniga|Stjörnumerkt`,
	labelArchived: `Archived|Archive|Archiviert|Archivés|Archivé|Messages archivés|Archivados|Archivado|Archiviati|Archiviato|Archiviata|Arquivados|Arquivado|Arquivadas|Arquivada|Gearchiveerd|Arkiverade|Arkiverat|Arkiveret|Arkivert|Arkivoidut|Arkistoitu|Arkistoidut|
		Zarchiwizowane|Zarchiwizowana|Archivováno|Archivované|Archivovaná|Archivált|Archiválva|Arhivate|Arhivat|Архивные|В архиве|Архивировано|Архивированные|Архівовано|Архівовані|Архивирани|Архивирано|Arşivlendi|Arşivlenmiş|Αρχειοθετημένα|Αρχειοθετήθηκε|تمت أرشفتها|مؤرشفة|الأرشيف|הועבר לארכיון|בארכיון|بایگانیشده|بایگانی شده|
		アーカイブ済み|アーカイブ|보관됨|보관처리됨|已归档|已封存|เก็บแล้ว|เก็บถาวร|Đã lưu trữ|Diarsipkan|Diarkibkan|संग्रहीत|Arxivats|Arxivat|Arhivirano|Архивирано|Suarchyvuota|Archyvuoti|Arhivēts|Arhivēti|Arhiivitud|Arhiveeritud`,
	labelIgnored: `Opened|Important|Chat|Chats|Snoozed|Scheduled|All Mail|Muted|Geöffnet|Wichtig|Zurückgestellt|Geplant|Alle Nachrichten|Ouvert|Ouverts|Importants|En attente|Planifié|Planifiés|Programmés|Tous les messages|Abierto|Abiertos|Importante|Importantes|Pospuestos|Pospuesto|Programados|Programado|Todos|
		Aperto|Aperti|Aperta|Importanti|Posticipati|Posticipato|Programmati|Pianificati|Tutti i messaggi|Aberto|Abertos|Aberta|Adiados|Adiado|Suspensos|Agendados|Agendado|Todos os e-mails|Geopend|Belangrijk|Gesnoozed|Gepland|Alle e-mail|Öppnat|Öppnad|Öppnade|Viktigt|Viktiga|Uppskjutet|Schemalagt|
		Åbnet|Vigtigt|Vigtig|Udsat|Planlagt|Åpnet|Viktig|Utsatt|Avattu|Avatut|Tärkeää|Tärkeä|Tärkeät|Torkutettu|Ajoitettu|Otwarte|Ważne|Odłożone|Zaplanowane|Otevřeno|Otevřené|Důležité|Odloženo|Naplánováno|Otvorené|Otvorená|Dôležité|Odložené|Naplánované|Megnyitva|Megnyitott|Fontos|Elhalasztva|Ütemezett|
		Deschise|Deschis|Importante|Amânate|Programate|Открытые|Открыто|Прочитанные|Важное|Важные|Отложенные|Запланированные|Відкрито|Відкриті|Важливо|Важливі|Відкладені|Заплановані|Отворено|Отворени|Важно|Важни|Отложени|Насрочени|Açıldı|Açılmış|Önemli|Ertelendi|Ertelenen|Planlanan|Planlandı|
		Ανοίχτηκε|Ανοιγμένα|Σημαντικά|Σημαντικό|Σε αναβολή|Προγραμματισμένα|مفتوحة|تم فتحها|مهمة|مهم|المهمة|مؤجلة|مجدولة|נפתח|נפתחו|חשוב|חשובים|נדחה|מתוזמן|باز شده|بازشده|مهم|開封済み|重要|スヌーズ中|予定|送信予定|チャット|열람|읽음|중요|중요편지함|다시 알림|예약됨|채팅|
		已打开|重要邮件|已延后|已定时|聊天|已開啟|重要郵件|已延後|已排定時間|เปิดแล้ว|สำคัญ|ปิดเสียงเตือนชั่วคราว|กำหนดเวลาแล้ว|Đã mở|Quan trọng|Đã tạm ẩn|Đã lên lịch|Dibuka|Penting|Ditunda|Terjadwal|Dijadualkan|खोला गया|महत्वपूर्ण|Obert|Oberts|Importants|Posposats|Programats|Otvoreno|Važno|Odgođeno|Zakazano|
		Odprto|Pomembno|Отворено|Важно|Atidaryta|Svarbu|Svarbūs|Atvērts|Svarīgi|Svarīgs|Avatud|Oluline|Tähtis|Opnað|Mikilvægt`,
}

// categoryPattern matches the start of a label for Gmail's categories.
var categoryPattern = regexp.MustCompile(`^category |^(?:category|kategorie|catégorie|categoría|categoria|categorie|kategori|luokka|kategoria|kategória|kategorija|категория|категорія|κατηγορία|الفئة|فئة|קטגוריה|دسته|カテゴリ|카테고리|类别|類別|หมวดหมู่|danh mục|श्रेणी|kategooria|flokkur)\s*[:："「“„«]`)

// labelTable maps folded names to labels.
type labelTable map[string]label

func newLabelTable() labelTable {
	k := labelTable{}
	for what, names := range labelNames {
		for name := range strings.SplitSeq(names, "|") {
			k[foldLabel(name)] = what
		}
	}
	return k
}

// foldLabel returns the same text for all spellings of a label.
func foldLabel(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) { // for example the joiners in Persian
			return -1
		}
		return r
	}, name)
	return strings.ToLower(norm.NFC.String(strings.Join(strings.Fields(name), " ")))
}

// lookup returns the meaning of a label.
func (k labelTable) lookup(name string) label {
	name = foldLabel(name)
	if what, ok := k[name]; ok {
		return what
	}
	if categoryPattern.MatchString(name) {
		return labelIgnored
	}
	return labelUser
}

// applyLabels applies the labels of Google's export, which are folders, flags and states at once.
// Other labels than Gmail's become folders.
func (m *Message) applyLabels(value string, names labelTable) {
	decoded, err := new(mime.WordDecoder).DecodeHeader(value)
	if err != nil {
		decoded = value
	}
	r := csv.NewReader(strings.NewReader(decoded))
	r.LazyQuotes = true
	all, err := r.Read()
	if err != nil {
		return
	}
	m.Flags |= Seen
	system, own, archived := "", "", false
	in := func(folder string, wins bool) {
		if system == "" || wins {
			system = folder
		}
	}
	for _, text := range all {
		name := strings.TrimSpace(text)
		switch names.lookup(name) {
		case labelUnread:
			m.Flags &^= Seen
		case labelStarred:
			m.Flags |= Flagged
		case labelInbox:
			in("INBOX", false)
		case labelSent:
			in("Sent", false)
		case labelDrafts:
			in("Drafts", false)
			m.Flags |= Draft
		case labelSpam:
			in("Spam", true)
		case labelTrash:
			in("Trash", true)
		case labelArchived:
			archived = true
		case labelIgnored:
		case labelUser:
			if own == "" {
				own = name
			}
		}
	}
	switch {
	case system != "":
		m.Folder = system
	case own != "":
		m.Folder = own
	case archived:
		m.Folder = "Archive"
	}
}
