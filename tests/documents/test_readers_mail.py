"""Readers of mails: .eml, .mbox, Maildir and .msg files."""

from __future__ import annotations

import base64
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import ReadOptions, only_document_errors, read
from ragembed.documents.readers.mail_text import own_lines
from ragembed.documents.readers.registry import unread_reason
from ragembed.errors import DocumentError

DATA = Path(__file__).parents[1] / "data" / "mail"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40


def parsed(name: str, data: bytes | None = None) -> tuple[list[ParsedDocument], list[str]]:
    """Return the documents of a file and its warnings."""
    warnings: list[str] = []
    content = (DATA / name).read_bytes() if data is None else data
    return list(read(name, content, ReadOptions(on_warning=warnings.append))), warnings


def problem(name: str, data: bytes) -> str:
    """Return the reason why a file is not read, or an empty string."""
    try:
        with only_document_errors():
            parsed(name, data)
    except DocumentError as error:
        return str(error)
    return ""


def lines_of(document: ParsedDocument) -> list[tuple[int, str]]:
    """Return the lines of the text that are not blank, with their lines in the file."""
    assert document.line_numbers is not None
    rows = zip(document.line_numbers, document.text.split("\n"), strict=True)
    return [(number, line) for number, line in rows if line]


def test_transfer_encodings_and_their_lines() -> None:
    [document], warnings = parsed("encodings.eml")
    assert document.title == "Lyrics"
    assert document.metadata == {
        "subject": "Lyrics",
        "from": "Barry Warsaw <barry@python.org>",
        "to": "Dingus Lovers <cravindogs@cravindogs.com>",
        "date": "2001-04-20T23:35:02Z",
    }
    assert lines_of(document) == [
        (12, "This is a 7bit encoded message."),
        (18, "¡This is a Quoted Printable encoded message!"),
        (24, "This is a Base64 encoded message."),
        (31, "This is a Base64 encoded message."),
        (37, "This has no Content-Transfer-Encoding: header."),
    ]
    assert warnings == []


def test_mails_of_a_digest_are_members() -> None:
    documents, _ = parsed("digest.eml")
    assert [(d.title, d.metadata.get("member")) for d in documents[:3]] == [
        ("Ppp digest, Vol 1 #2 - 5 msgs", None),
        ("[Ppp] testing #1", "message.eml"),
        (None, "message.eml"),
    ]
    assert lines_of(documents[0])[-1] == (40, "   5. testing #5 (Barry A. Warsaw)")  # without the footer of the list
    assert documents[1].metadata["date"] == "2001-04-21T00:16:13Z"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "outlook-code-page.msg",
            [
                (
                    "This email contains an email… Email-ception!!!\n",
                    {
                        "subject": "PST Export - Embedded Email Test",
                        "from": "Joseph Q Bloggs <joebloggs@example.org>",
                        "to": "Joseph Q Bloggs <joebloggs@example.org>",
                        "date": "2019-10-09T05:55:10Z",
                        "message_id": (
                            "ME2PR01MB44198426BA1B46A2296E6727E5950@ME2PR01MB4419.ausprd01.prod.outlook.com"
                        ),
                    },
                )
            ],
        ),
        (
            "outlook-picture.msg",
            [
                (
                    "test\n",
                    {
                        "subject": "test",
                        "from": "Matijs van Zuijlen <Matijs.van.Zuijlen@xs4all.nl>",
                        "to": "matijs@xxxxxx.nl",
                        "date": "2007-09-24T13:28:03Z",
                        "message_id": "20070924132803.GB10141@matijs.net",
                    },
                )
            ],
        ),
        (
            "outlook-attached-mail.msg",
            [
                ("Outer body\n", {"subject": "outer subject", "to": "outer@foo.bar", "date": "2016-11-15T23:29:05Z"}),
                ("body\n", {"subject": "test", "date": "2016-11-15T23:28:26Z", "member": "test"}),
            ],
        ),
    ],
)
def test_outlook_mails(name: str, expected: list[tuple[str, dict[str, Any]]]) -> None:
    pytest.importorskip("olefile")
    documents, warnings = parsed(name)
    assert [(d.text, d.metadata) for d in documents] == expected
    assert all(d.page_numbers == () and d.title == d.metadata["subject"] for d in documents)
    assert warnings == []


@pytest.mark.parametrize(
    ("name", "expected"), [("outlook-picture.msg", "test\n"), ("outlook-attached-mail.msg", "Outer body\n")]
)
def test_outlook_mails_with_only_rtf(name: str, expected: str) -> None:
    pytest.importorskip("olefile")
    data = (DATA / name).read_bytes()
    for kind in ("001E", "001F"):  # give the plain text another number
        data = data.replace(f"_1000{kind}".encode("utf-16-le"), f"_10FF{kind}".encode("utf-16-le"))
    documents = [each for each in parsed("a.msg", data)[0] if "member" not in each.metadata]
    assert [document.text for document in documents] == [expected]


def test_compressed_rtf() -> None:
    from ragembed.documents.readers.outlook import _decompressed

    example = (  # [MS-OXRTFCP] 4.1.1
        "2d0000002b0000004c5a4675f1c5c7a703000a00726370673132354232 0af32068656c09002062 7705b06c647d0a800fa0"
    )
    data = bytes.fromhex(example)
    assert _decompressed(data) == b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n"
    assert _decompressed(data[:30]).startswith(b"{\\rtf1\\ansi")
    assert _decompressed(b"\x10\0\0\0\x04\0\0\0MELA\0\0\0\0{\\b}") == b"{\\b}"
    with pytest.raises(DocumentError, match="ZZZZ"):
        _decompressed(data[:8] + b"ZZZZ" + data[12:])


def test_damaged_outlook_mails_are_read_or_rejected() -> None:
    pytest.importorskip("olefile")
    whole = (DATA / "outlook-picture.msg").read_bytes()
    places = range(0, 4096, 61)
    damaged = [whole[:place] + b"\xff" * 4 + whole[place + 4 :] for place in places]
    problems = [problem("a.msg", data) for data in (*damaged, *(whole[: 6 * place] for place in places))]
    assert not any("its reader failed" in each for each in problems)
    assert sum(map(bool, problems)) > 20


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"string name\nint32 id\n", 1),  # a message of ROS
        (b"From: a@b\nDate: Fri, 20 Apr 2001 19:35:02 -0400\n\nstring name\n", 4),
    ],
)
def test_other_msg_files_are_mails_or_plain_text(data: bytes, line: int) -> None:
    [document], _ = parsed("a.msg", data)
    assert "string name" in document.text
    assert (document.line_numbers or range(1, 9))[0] == line


def mail(**headers: str) -> EmailMessage:
    message = EmailMessage()
    for name, value in {"Subject": "Tea", "From": "Ann <ann@example.org>", **headers}.items():
        message[name.replace("_", "-")] = value
    return message


def test_attachments_are_read_by_their_readers_and_pictures_are_not() -> None:
    message = mail(Message_ID="<1@example.org>", Date="Mon, 01 Jan 2024 10:00:00 -0200")
    message.set_content("The leaves are below.\n")
    message.add_attachment(b"# Oolong\n\nHalf oxidised.\n", "text", "markdown", filename="Tée/notes.md")
    message.add_attachment(b"name,origin\nAssam,India\n", "text", "csv", filename="t.csv")
    message.add_attachment(PNG, "image", "png", filename="cup.png")
    message.add_attachment(PNG, "application", "octet-stream", filename="cup2.PNG")
    message.add_attachment(b"\0\1\2" * 500, "application", "octet-stream", filename="a.exe")
    inner = mail(Subject="Forwarded")
    inner.set_content("A mail in a mail.\n")
    message.add_attachment(inner)
    documents, warnings = parsed("a.eml", message.as_bytes())
    metadata = {
        "subject": "Tea",
        "from": "Ann <ann@example.org>",
        "date": "2024-01-01T12:00:00Z",
        "message_id": "1@example.org",
    }
    assert [(d.title, d.text, d.metadata) for d in documents] == [
        ("Tea", "The leaves are below.\n", metadata),
        ("Oolong", "# Oolong\n\nHalf oxidised.\n", {**metadata, "member": "notes.md"}),
        (None, "name: Assam\norigin: India", {**metadata, "member": "t.csv"}),
        (
            "Forwarded",
            "A mail in a mail.\n",
            {"subject": "Forwarded", "from": "Ann <ann@example.org>", "member": "message.eml"},
        ),
    ]
    assert warnings == [f"a.exe is not read: {unread_reason('a.exe')}"]


def test_large_attachments_do_not_become_text() -> None:
    message = mail()
    message.set_content("Look at this:\n" + "\n".join(base64.encodebytes(PNG).decode().split("\n")))
    message.add_attachment(PNG * 20, "application", "octet-stream", filename="cup.bin")
    [document], _ = parsed("a.eml", message.as_bytes())
    assert document.text.startswith("Look at this:\n")
    assert len(document.text) < 120  # the last line of base64 is short and looks like a word


@pytest.mark.parametrize(
    ("plain", "html", "expected"),
    [
        ("Plain text.", "<p>HTML text.</p>", "Plain text.\n"),
        (" \n", "<h1>Tea</h1><p>HTML text.</p>", "Tea\n\nHTML text.\n"),
        ("Tea at four, at the north quay.", "<style>p{color:red}</style><p>Tea at four, at the <b>north quay</b>.",
         "Tea at four, at the north quay.\n"),
        ("お茶は四時です。", "<p>お茶は<br>四時です。</p>", "お茶は四時です。\n"),
        ("Please view this email in a browser.", "<td>Order 7731 ships on Friday with courier Gannet.</td>",
         "Order 7731 ships on Friday with courier Gannet.\n"),
        ("Ihr Programm kann kein HTML anzeigen.", "<p>Die Rechnung 88 &uuml;ber 120 &euro; ist am 3. Mai f&auml;llig.",
         "Die Rechnung 88 über 120 € ist am 3. Mai fällig.\n"),
        ("??????? ?? ??????.", "<p>Совещание в четверг.</p>", "Совещание в четверг.\n"),
        ("This mail is in HTML. Open it at https://example.org/view", "<p>Gate 7 opens.", None),
    ],
)  # fmt: skip
def test_alternatives_prefer_plain_text_unless_it_is_empty_or_a_stub(plain: str, html: str, expected: str) -> None:
    message = mail()
    message.set_content(plain)
    message.add_alternative("<p>AMP text.</p>", subtype="x-amp-html")
    message.add_alternative(html, subtype="html")
    [document], _ = parsed("a.eml", message.as_bytes())
    assert document.text == (f"{plain}\n\nGate 7 opens.\n" if expected is None else expected)


@pytest.mark.parametrize(
    ("subtype", "text"),
    [
        ("html", "<p>Yes.</p><blockquote type=cite>Tea at the quay?</blockquote>"),
        ("plain", "Yes.\n\nOn Monday, Ann wrote:\n> Tea at the quay?"),
    ],
)
def test_quotes_are_left_out_if_the_quoted_mail_is_in_the_mailbox(subtype: str, text: str) -> None:
    answer = mail(In_Reply_To="<1@example.org>")
    answer.set_content(text, subtype=subtype)
    asked = mail(Message_ID="<1@example.org>")
    asked.set_content("Tea at the quay?")
    postmark = b"From x Mon Jan  1 10:00:00 2024\n"
    quoted = {
        "a.eml": answer.as_bytes(),
        "alone.mbox": postmark + answer.as_bytes(),
        "all.mbox": postmark + asked.as_bytes() + b"\n" + postmark + answer.as_bytes(),
        "1204680122.M37P1.host:2,S": answer.as_bytes(),
    }
    texts = {name: parsed(name, data)[0][-1].text for name, data in quoted.items()}
    assert ["Tea at the quay?" in text for text in texts.values()] == [True, True, False, False]
    assert all(text.startswith("Yes.\n") for text in texts.values())


def test_a_signature_above_a_quote_ends_at_the_quote() -> None:
    for quote in ("On Monday, Ann wrote:\n> Tea at the quay?", "From: Ann\nSent: Monday\n\nTea at the quay?"):
        lines = f"Yes.\n-- \nBob\nHead of Tea\n\n{quote}\n-- \nAnn".split("\n")
        left = [line for line, keep in zip(lines, own_lines(lines, keep_quotes=True), strict=True) if keep]
        assert left == ["Yes.", *quote.split("\n")]


INVITE = """\
BEGIN:VCALENDAR
X-WR-CALNAME:Quay
BEGIN:VTIMEZONE
TZID:Europe/Oslo
BEGIN:STANDARD
DTSTART:19701025T030000
END:STANDARD
END:VTIMEZONE
BEGIN:VEVENT
UID:1@example.org
DTSTART;TZID=Europe/Oslo:20250303T100000
DTEND:20250303T093000Z
SUMMARY:Sluice\\, inspection
ORGANIZER;CN="Ann, Port":mailto:ann@example.org
LOCATION:North qu
 ay
DESCRIPTION:Bring a lamp.\\nGate 7
BEGIN:VALARM
DESCRIPTION:Reminder
END:VALARM
END:VEVENT
BEGIN:VTODO
SUMMARY:Order grease
DUE;VALUE=DATE:20250401
CONFERENCE;VALUE=URI:https://example.org/room
URL:https://example.org/grease
END:VTODO
END:VCALENDAR
"""


def test_calendars_have_a_document_per_event() -> None:
    event, task = parsed("plan.ics", INVITE.replace("\n", "\r\n").encode())[0]
    assert lines_of(event) == [
        (13, "Sluice, inspection"), (11, "start: 2025-03-03 10:00 (Europe/Oslo)"), (12, "end: 2025-03-03 09:30 UTC"),
        (15, "place: North quay"), (14, "organizer: Ann, Port <ann@example.org>"), (17, "Bring a lamp."),
        (17, "Gate 7"),
    ]  # fmt: skip
    assert (event.title, event.metadata) == ("Sluice, inspection", {"start": "2025-03-03 10:00 (Europe/Oslo)"})
    assert event.blocks[0].headings == ("Quay",)
    links = "conference: https://example.org/room\nurl: https://example.org/grease\n"
    assert task.text == f"Order grease\ndue: 2025-04-01\n{links}"


def test_contacts_are_read_and_other_vcf_files_are_plain_text() -> None:
    name = "item1.FN;CHARSET=ISO-8859-1;ENCODING=QUOTED-PRINTABLE:J=F6rg =\nBerg"
    card = f"BEGIN:VCARD\nVERSION:2.1\n{name}\nADR:;;Kai 1;Oslo;;;\n"  # without its last line
    [document], _ = parsed("a.vcf", card.encode())
    assert (document.title, document.text) == ("Jörg Berg", "Jörg Berg\naddress: Kai 1, Oslo\n")
    [document], _ = parsed("a.vcf", b"##fileformat=VCFv4.2\n#CHROM\tPOS\n1\t99\n")
    assert document.text.startswith("##fileformat")


def test_invites_in_mails_are_read() -> None:
    message = mail()
    message.set_content("Ann invites you.")
    message.add_alternative("<p>Ann invites you.</p>", subtype="html")
    message.add_alternative(INVITE, subtype="calendar")
    documents, warnings = parsed("a.eml", message.as_bytes())
    assert [d.text.split("\n")[0] for d in documents] == ["Ann invites you.", "Sluice, inspection", "Order grease"]
    assert warnings == []


def test_saved_web_pages_are_read_as_html() -> None:
    page = mail(Subject="Saved")
    html = "<html><head><title>Tides</title></head><body><h1>Tides</h1>\n<p>Six metres\nat the quay=1.</body></html>"
    page.set_content(html, "html", cte="quoted-printable")
    page.add_related(PNG, "image", "png")
    data = page.as_bytes().replace(b"\n", b"\r\n")
    [document], warnings = parsed("page.mhtml", data)
    start = data.split(b"\r\n").index(b"<p>Six metres") + 1
    assert (document.title, lines_of(document)) == (
        "Tides",
        [(start - 1, "Tides"), (start, "Six metres at the quay=1.")],
    )
    assert warnings == []
    frames = mail(Subject="Frames")
    frames.set_content("<frameset><frame src=a></frameset>", "html")
    frames.add_related(b"<p>Text of the frame.</p>", "text", "html")
    [document], _ = parsed("page.mht", frames.as_bytes())
    assert (document.title, document.text) == ("Frames", "Text of the frame.\n")
    with pytest.raises(DocumentError, match="has no HTML part"):
        parsed("page.mht", b"Subject: a\n\nplain\n")


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        (b"Subject: =?iso-8859-1?q?Caf=E9?= au lait", b"x", "Café au lait"),
        (b"Subject: Caf\xc3\xa9", b"x", "Café"),
        (b"\xef\xbb\xbfSubject: Caf\xe9", b"x", "Café"),
        (b"Subject: =?nonsense?q?Caf=E9?=", b"x", "Café"),
    ],
)
def test_headers_with_wrong_character_sets_are_read(headers: bytes, body: bytes, expected: str) -> None:
    [document], _ = parsed("a.eml", headers + b"\n\n" + body)
    assert document.title == expected


@pytest.mark.parametrize("charset", ["us-ascii", "x-unknown", "punycode", "utf-8", "iso-8859-1\0"])
def test_texts_with_wrong_character_sets_are_read(charset: str) -> None:
    data = f"Subject: a\nContent-Type: text/plain; charset={charset}\n\nWe drank coffee at the caf\xe9.".encode(
        "latin-1"
    )
    [document], _ = parsed("a.eml", data)
    assert document.text == "We drank coffee at the café.\n"


REPLY = """\
Yes, at four.

On Mon, 1 Jan 2024, Ann wrote:
> Shall we have tea?
> Ann
"""
INTERLEAVED = """\
Ann asked:
> one
> two
> three
> four

Yes, four.

> five
No.
"""
OUTLOOK = """\
Yes, at four.

From: Ann
Sent: Monday
To: Bob
Subject: Tea

Shall we have tea?
"""
FORWARDED = """\
See below.

---------- Forwarded message ----------
From: Ann
Date: Monday
Subject: Tea

Shall we have tea?
"""
SIGNED = """\
-----BEGIN PGP SIGNED MESSAGE-----
Hash: SHA256

Yes.
-----BEGIN PGP SIGNATURE-----

iQEzBAEBCAAdFiEE
-----END PGP SIGNATURE-----
--\x20
Bob
Head of Tea
"""
LISTED = """\
Yes.
_______________________________________________
Tea mailing list
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (REPLY, ["Yes, at four."]),
        (INTERLEAVED, ["> two", "> three", "> four", "Yes, four.", "> five", "No."]),
        (OUTLOOK, ["Yes, at four."]),
        ("Ja.\n\nAm 1. Januar schrieb Ann\nMeier:\n\nTee?\n", ["Ja."]),
        ("Oui.\n\nLe 1 janvier, Ann a écrit :\n\nDu thé ?\n", ["Oui."]),
        ("-----Original Message-----\nTea?\n", ["-----Original Message-----", "Tea?"]),
        ("Yes.\n-----Original Message-----\nTea?\n", ["Yes."]),
        (FORWARDED, FORWARDED.split("\n")),
        (SIGNED, ["Yes."]),
        (LISTED, ["Yes."]),
        ("Notes\n--\n" + "More notes.\n" * 20, ["Notes", "--", *["More notes."] * 20]),
        ("begin 644 cup.gif\nM1TE&.#EA\nend\nA cup.\n", ["A cup."]),
    ],
)
def test_own_lines(text: str, expected: list[str]) -> None:
    lines = text.split("\n")
    kept = [
        line for line, keep in zip(lines, own_lines(lines, keep_quotes=False), strict=True) if keep and line.strip()
    ]
    assert kept == [line for line in expected if line.strip()]


def test_a_mail_that_only_quotes_is_kept() -> None:
    [document], _ = parsed("a.eml", b"Subject: Fwd\n\n> Shall we have tea?\n")
    assert document.text == "> Shall we have tea?\n"


def test_a_mail_without_text_has_its_subject_as_text() -> None:
    [document], _ = parsed("a.eml", b"Subject: Tea at four <eom>\n\n\n")
    assert lines_of(document) == [(1, "Tea at four <eom>")]


MAILBOX = b"""From ann Mon Jan  1 10:00:00 2024
Subject: One
From: ann@example.org

From here on, tea.
>From there, coffee.

From bob Mon Jan  1 11:00:00 2024
Content-Type: multipart/mixed; boundary=x

--x
Content-Type: text/markdown
Content-Disposition: attachment; filename=a.md

# Notes
--x--
"""


def test_each_mail_of_a_mailbox_is_a_document_with_its_lines() -> None:
    documents, warnings = parsed("all.mbox", MAILBOX.replace(b"\n", b"\r\n"))
    assert [(d.title, d.metadata) for d in documents] == [
        ("One", {"subject": "One", "from": "ann@example.org"}),
        ("Notes", {"member": "a.md"}),
    ]
    assert lines_of(documents[0]) == [(5, "From here on, tea."), (6, "From there, coffee.")]
    assert warnings == []
    with pytest.raises(DocumentError, match="not a mailbox: no line starts with 'From '"):
        parsed("a.mbox", b"Subject: One\n\nTea.\n")


def test_one_bad_mail_does_not_stop_the_mailbox() -> None:
    nested = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(10_000))
    documents, warnings = parsed("all.mbox", b"From x Mon Jan  1 10:00:00 2024\n" + nested + b"\n\n" + MAILBOX)
    assert [d.title for d in documents] == ["One", "Notes"]
    assert warnings == ["1 mails are not read (first: the mail on line 1: its parts have more than 20 levels)"]


@pytest.mark.parametrize(
    "name", ["1204680122.M37P1.host:2,S", "1204680122_0.123.host,U=1,FMD5=ab:2,", "1204680122.M1P2.h"]
)
def test_mails_of_a_maildir_are_read(name: str) -> None:
    [document], _ = parsed(name, b"Subject: Tea\n\nAt four.\n")
    assert (document.title, document.text) == ("Tea", "At four.\n")


PARTS = b"Content-Type: multipart/mixed; boundary=b\n\n"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (PARTS + b"--b\n\na\n" * 20_000, "more than 1,000 parts"),
        (b"Subject: a\n" + b"X: y\n" * 60_000 + b"\nbody\n", "headers have more than 262,144 bytes"),
        (b"Subject: a\n" + b" y\n" * 100_000 + b"\nbody\n", "headers have more than 262,144 bytes"),
        (b"Subject: a\n\n" + b"x\n" * 600_000, "more than 500,000 lines"),
        (b"Subject: a\nContent-Type: text/html\n\n" + b"<b>" * 400_000, "more than 300,000 tags"),
        (
            b"Subject: a\nContent-Transfer-Encoding: base64\n\n" + base64.b64encode(b"x\n" * 600_000),
            "more than 500,000 lines",
        ),
    ],
)
def test_hostile_mails_are_rejected(data: bytes, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        parsed("a.eml", data)


def test_mails_inside_mails_are_read_to_a_limit() -> None:
    data = b"Content-Type: message/rfc822\n\n" * 10_000 + b"\nTea.\n"
    with pytest.raises(DocumentError, match=r"message.eml/message.eml is not read: nested in more than 3 files"):
        parsed("a.eml", data)


LINES = ["> a", "", "b", "On x wrote:", "-- ", "--", "From: a", "Sent: b", "_" * 50]
CALENDAR = [b"BEGIN:VEVENT\n", b"END:VEVENT\n", b"SUMMARY;ENCODING=QUOTED-PRINTABLE:=\n", b" \n"]
PIECES = [*CALENDAR, *PARTS.split(b" "), b"\n", b"--b", b"--b--", b"Subject: =?", b"\xff", b"To: ((", b'"']


@given(st.lists(st.sampled_from(LINES), max_size=9))
def test_own_lines_returns_one_value_per_line(lines: list[str]) -> None:
    assert len(own_lines(lines, keep_quotes=False)) == len(own_lines(lines, keep_quotes=True)) == len(lines)


@pytest.mark.parametrize("name", ["a.eml", "a.mbox", "a.msg", "a.mht", "a.ics"])
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=30))
def test_any_bytes_are_read_or_rejected(name: str, pieces: list[bytes]) -> None:
    assert "its reader failed" not in problem(name, b"From x 10:00 2024\n" + b"".join(pieces))
