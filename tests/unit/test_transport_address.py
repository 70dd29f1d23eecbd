import pytest

from nemo_gym.transport.address import AddressInvalid, is_loopback, parse_address
from nemo_gym.transport.proxies import Proxies


@pytest.mark.parametrize(
    ("base_url", "asked_for"),
    [
        ("http://h:8000", "/v1/chat/completions"),
        ("http://h:8000/", "/v1/chat/completions"),
        ("http://h:8000/v1", "/v1/chat/completions"),
        ("http://h:8000/v1/", "/v1/chat/completions"),
        ("  https://api.openai.com/v1\n", "/v1/chat/completions"),
        ("https://openrouter.ai/api/v1", "/api/v1/chat/completions"),
        ("https://api.deepseek.com/anthropic", "/anthropic/v1/chat/completions"),
        ("https://open.bigmodel.cn/api/paas/v4/", "/api/paas/v4/chat/completions"),
        (
            "https://generativelanguage.googleapis.com/v1beta/openai/",
            "/v1beta/openai/chat/completions",
        ),
        ("http://h/vllm", "/vllm/v1/chat/completions"),
        ("https://h/openai/v1?api-version=1", "/openai/v1/chat/completions?api-version=1"),
    ],
)
def test_a_base_url_works_as_people_write_it(base_url: str, asked_for: str) -> None:
    assert parse_address(base_url).target("/v1/chat/completions") == asked_for


def test_the_query_of_a_call_follows_that_of_the_base_url() -> None:
    address = parse_address("https://h/v1?key=1")

    assert address.target("/v1/messages?beta=true") == "/v1/messages?key=1&beta=true"


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://Example.COM", "http://example.com"),
        ("http://h:80/x", "http://h"),
        ("https://h:443", "https://h"),
        ("https://h:8443", "https://h:8443"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
        ("http://bücher.example", "http://xn--bcher-kva.example"),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, origin: str) -> None:
    assert parse_address(url).origin == origin


def test_user_and_password_become_a_header_and_are_never_shown() -> None:
    address = parse_address("https://user:p%40ss@h/v1?key=secret")

    assert address.authorization == "Basic dXNlcjpwQHNz"
    assert address.origin == "https://h"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "does not begin with http"),
        ("localhost:8000", "does not begin with http"),
        ("ftp://h", "does not begin with http"),
        ("http://", "names no host"),
        ("http:///v1", "names no host"),
        ("http://h:port", "cannot be read"),
        ("http://h:99999", "cannot be read"),
        ("http://h/é", "percent-encoded"),
        ("http://h/a b", "blanks or control characters"),
        ("http://h\r\nx/", "blanks or control characters"),
        ("http://[::1", "cannot be read"),
    ],
)
def test_a_url_that_names_no_server_is_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(AddressInvalid, match=why):
        parse_address(url)


def test_a_refusal_repeats_no_secret_of_the_url() -> None:
    with pytest.raises(AddressInvalid) as refused:
        parse_address("htp://user:hunter2@h/v1?key=sk-secret")

    assert "hunter2" not in str(refused.value)
    assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1"])
def test_loopback_is_known_by_its_names(host: str) -> None:
    assert is_loopback(host)
    assert not is_loopback(f"x{host}")


@pytest.mark.parametrize(
    ("environ", "url", "proxy"),
    [
        ({"HTTP_PROXY": "http://p:1"}, "http://h", "http://p:1"),
        ({"http_proxy": "http://low:1", "HTTP_PROXY": "http://up:1"}, "http://h", "http://low:1"),
        ({"HTTP_PROXY": "http://p:1"}, "https://h", None),
        ({"HTTPS_PROXY": "p:1"}, "https://h", "http://p:1"),
        ({"ALL_PROXY": "http://p:1"}, "https://h", "http://p:1"),
        ({"ALL_PROXY": "http://p:1"}, "http://127.0.0.1:8000", None),
        ({"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, "http://h", None),
        ({"HTTP_PROXY": ""}, "http://h", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "*"}, "http://h", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "a, h.example"}, "http://h.example", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "example"}, "http://h.example", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": ".example"}, "http://h.example", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "*.example"}, "http://h.example", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "ample"}, "http://h.example", "http://p:1"),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "h:80"}, "http://h", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "h:81"}, "http://h", "http://p:1"),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "http://10.1.2.3", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "http://11.1.2.3", "http://p:1"),
        ({"ALL_PROXY": "http://p:1", "no_proxy": "[fd00::1]:80"}, "http://[fd00::1]", None),
    ],
)
def test_proxies_of_the_environment(environ: dict[str, str], url: str, proxy: str | None) -> None:
    found = Proxies.of_environment(environ).for_address(parse_address(url))

    assert (found.origin if found else None) == proxy


def test_a_proxy_of_a_kind_that_is_not_spoken_is_refused_by_name() -> None:
    proxies = Proxies.of_environment({"ALL_PROXY": "socks5://p:1"})

    with pytest.raises(AddressInvalid, match=r"the proxy for http://h: 'socks5://p:1'"):
        proxies.for_address(parse_address("http://h"))
