"""The tools of the mailbox."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from nemo_gym.resources_servers.workplace_tools.arguments import (
    Address,
    Arguments,
    Day,
    Text,
    addresses,
    days,
)
from nemo_gym.resources_servers.workplace_tools.workplace import (
    Record,
    ToolMistake,
    Workplace,
    words_in,
)

__all__ = ["MAIL_TOOLS"]

_PREVIEW = 120

EmailId = Annotated[str, Meta(description="Id of an email, as search_emails shows it.")]
Recipients = Annotated[list[Address], Meta(min_length=1, description="Email addresses.")]


class SearchEmails(Arguments, frozen=True, kw_only=True):
    """Find emails, newest first. Shows id, sender, recipients, subject, date and a preview."""

    query: Annotated[
        str, Meta(description="Words that must all be in the subject, the body or an address.")
    ] = ""
    sender: Annotated[str | None, Meta(description="Part of the sender's address.")] = None
    recipient: Annotated[str | None, Meta(description="Part of a recipient's address.")] = None
    folder: Annotated[
        Literal["inbox", "sent", "trash"] | None, Meta(description="Default: inbox and sent.")
    ] = None
    since: Day | None = None
    until: Day | None = None
    limit: Annotated[int, Meta(ge=1, le=50)] = 10


class GetEmail(Arguments, frozen=True, kw_only=True):
    """Read one email in full."""

    email_id: EmailId


class SendEmail(Arguments, frozen=True, kw_only=True):
    """Send a new email from your own address."""

    to: Recipients
    subject: Text
    body: Text
    cc: Annotated[list[Address], Meta(description="Email addresses.")] = msgspec.field(
        default_factory=list
    )


class ReplyToEmail(Arguments, frozen=True, kw_only=True):
    """Reply to an email. The subject and the recipients are set by themselves."""

    email_id: EmailId
    body: Text
    reply_all: Annotated[
        bool, Meta(description="Also to everybody else the email went to. Default: false.")
    ] = False


class ForwardEmail(Arguments, frozen=True, kw_only=True):
    """Forward an email, its text included, to somebody else."""

    email_id: EmailId
    to: Recipients
    comment: Annotated[str, Meta(description="Text put before the forwarded email.")] = ""


class DeleteEmail(Arguments, frozen=True, kw_only=True):
    """Move an email to the trash."""

    email_id: EmailId


def search_emails(office: Workplace, asked: SearchEmails) -> dict[str, Any]:
    """Return what fits, newest first, and how many there are."""
    since, until = days(asked.since, asked.until)
    found = [
        mail
        for mail in office.emails.values()
        if (mail["folder"] == asked.folder if asked.folder else mail["folder"] != "trash")
        and since <= mail["date"][:10] <= until
        and _part_of(asked.sender, [mail["from"]])
        and _part_of(asked.recipient, _recipients(mail))
        and words_in(asked.query, [mail["subject"], mail["body"], mail["from"], *_recipients(mail)])
    ]
    found.sort(key=lambda mail: str(mail["date"]), reverse=True)
    return {"total": len(found), "emails": [_preview(mail) for mail in found[: asked.limit]]}


def get_email(office: Workplace, asked: GetEmail) -> Record:
    """Return the whole email."""
    return office.get("emails", asked.email_id)


def send_email(office: Workplace, asked: SendEmail) -> dict[str, Any]:
    """Put the email into the sent folder."""
    to, cc = addresses(asked.to), addresses(asked.cc)
    return _sent(office, to=to, cc=cc, subject=asked.subject, body=asked.body)


def reply_to_email(office: Workplace, asked: ReplyToEmail) -> dict[str, Any]:
    """Answer the sender, or with `reply_all` everybody but oneself."""
    mail = office.get("emails", asked.email_id)
    to = list(mail["to"]) if mail["from"] == office.me else [mail["from"]]
    others = [a for a in _recipients(mail) if a not in {office.me, *to}] if asked.reply_all else []
    subject = _with_prefix("Re: ", mail["subject"])
    return _sent(office, to=to, cc=others, subject=subject, body=asked.body, in_reply_to=mail["id"])


def forward_email(office: Workplace, asked: ForwardEmail) -> dict[str, Any]:
    """Send the email on."""
    mail = office.get("emails", asked.email_id)
    to, subject = addresses(asked.to), _with_prefix("Fwd: ", mail["subject"])
    return _sent(office, to=to, cc=[], subject=subject, body=asked.comment, forwarded=mail["id"])


def delete_email(office: Workplace, asked: DeleteEmail) -> dict[str, Any]:
    """Move the email to the trash."""
    if office.get("emails", asked.email_id)["folder"] == "trash":
        raise ToolMistake(f"{asked.email_id} is in the trash already")
    office.change("emails", asked.email_id, {"folder": "trash"})
    return {"deleted": asked.email_id}


def _sent(office: Workplace, **content: Any) -> dict[str, Any]:
    mail = {"folder": "sent", "from": office.me, "date": office.now, **content}
    return {"sent": office.add("emails", mail)}


def _recipients(mail: Record) -> list[str]:
    return [*mail["to"], *mail.get("cc", ())]


def _part_of(wanted: str | None, texts: list[str]) -> bool:
    return not wanted or any(wanted.casefold().strip() in text.casefold() for text in texts)


def _with_prefix(prefix: str, subject: str) -> str:
    return subject if subject.casefold().startswith(prefix.casefold()) else prefix + subject


def _preview(mail: Record) -> dict[str, Any]:
    shown = {name: mail[name] for name in ("id", "folder", "from", "to", "subject", "date")}
    body = " ".join(str(mail["body"]).split())
    return shown | {"preview": body if len(body) <= _PREVIEW else f"{body[:_PREVIEW]}…"}


MAIL_TOOLS: tuple[tuple[type[Arguments], Callable[..., Any]], ...] = (
    (SearchEmails, search_emails),
    (GetEmail, get_email),
    (SendEmail, send_email),
    (ReplyToEmail, reply_to_email),
    (ForwardEmail, forward_email),
    (DeleteEmail, delete_email),
)
