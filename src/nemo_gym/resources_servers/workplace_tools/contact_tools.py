"""The tools of the address book."""

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta

from nemo_gym.resources_servers.workplace_tools.arguments import (
    Address,
    Arguments,
    Text,
    addresses,
    given_fields,
)
from nemo_gym.resources_servers.workplace_tools.workplace import (
    Record,
    ToolMistake,
    Workplace,
    words_in,
)

__all__ = ["CONTACT_TOOLS"]

ContactId = Annotated[str, Meta(description="Id of a contact, as find_contacts shows it.")]
_FIELDS = ("name", "email", "phone", "company", "role")


class FindContacts(Arguments, frozen=True, kw_only=True):
    """Find contacts. Shows id, name, email address, phone, company and role."""

    query: Annotated[
        str, Meta(description="Words that must all be in one contact; empty: everybody.")
    ] = ""


class AddContact(Arguments, frozen=True, kw_only=True):
    """Add a contact."""

    name: Text
    email: Address
    phone: str = ""
    company: str = ""
    role: str = ""


class UpdateContact(Arguments, frozen=True, kw_only=True):
    """Change a contact. Only what is given changes."""

    contact_id: ContactId
    name: Text | None = None
    email: Address | None = None
    phone: str | None = None
    company: str | None = None
    role: str | None = None


class DeleteContact(Arguments, frozen=True, kw_only=True):
    """Remove a contact."""

    contact_id: ContactId


def find_contacts(office: Workplace, asked: FindContacts) -> dict[str, Any]:
    """Return the contacts that fit, by name."""
    found = [
        contact
        for contact in office.contacts.values()
        if words_in(asked.query, [str(contact[name]) for name in _FIELDS])
    ]
    return {"contacts": sorted(found, key=lambda contact: (contact["name"], contact["id"]))}


def add_contact(office: Workplace, asked: AddContact) -> dict[str, Any]:
    """Add a contact whose address nobody else has."""
    content = {
        "name": asked.name,
        "email": _free_address(office, asked.email, None),
        "phone": asked.phone,
        "company": asked.company,
        "role": asked.role,
    }
    return {"added": office.add("contacts", content)}


def update_contact(office: Workplace, asked: UpdateContact) -> dict[str, Any]:
    """Change a contact."""
    contact = office.get("contacts", asked.contact_id)
    changes = given_fields(asked, *_FIELDS)
    if "email" in changes:
        changes["email"] = _free_address(office, changes["email"], contact)
    if all(contact[name] == value for name, value in changes.items()):
        raise ToolMistake(f"nothing in {asked.contact_id} would change")
    return {"updated": office.change("contacts", asked.contact_id, changes)}


def delete_contact(office: Workplace, asked: DeleteContact) -> dict[str, Any]:
    """Remove a contact."""
    return {"deleted": office.remove("contacts", asked.contact_id)["id"]}


def _free_address(office: Workplace, given: str, own: Record | None) -> str:
    (address,) = addresses([given])
    for contact in office.contacts.values():
        if contact["email"] == address and (own is None or contact["id"] != own["id"]):
            raise ToolMistake(f"{contact['name']} ({contact['id']}) has the address {address}")
    return address


CONTACT_TOOLS: tuple[tuple[type[Arguments], Callable[..., Any]], ...] = (
    (FindContacts, find_contacts),
    (AddContact, add_contact),
    (UpdateContact, update_contact),
    (DeleteContact, delete_contact),
)
