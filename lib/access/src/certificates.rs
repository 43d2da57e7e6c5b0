//! Certificate authority for trials and private networks. The authority's key is a file beside its
//! certificate. A process with read access to the key can issue certificates that the server accepts. A login
//! also requires an nkey.

use std::net::IpAddr;
use std::time::Duration;

use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode, Reader, SliceReader, Tag, Tagged};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use schemas::Timestamp;
use time::OffsetDateTime;

/// Validity period of new certificates: ten years. To lock a user out, revoke the user.
const VALIDITY: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Age of a certificate's validity start at its issue. Clocks of other hosts may be behind this host's clock.
const BACKDATING: Duration = Duration::from_secs(86_400);
/// Common name of the authority.
const AUTHORITY_NAME: &str = "Muster development CA";

/// Error while issuing a certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("cannot create the certificate")]
    Creation(#[from] rcgen::Error),
    /// The host is neither a valid host name nor an address.
    #[error("invalid host {0:?}: expected a host name or an IP address")]
    Host(String),
    /// The expiry of the issued certificate cannot be read.
    #[error("cannot read the expiry of the new certificate")]
    Expiry(#[from] ExpiryError),
    /// The clock is set to a time that a certificate cannot represent.
    #[error("cannot create the certificate: the clock shows {0}, which a certificate cannot represent")]
    Clock(Timestamp),
}

/// Certificate and its private key, both in PEM.
#[derive(Debug)]
pub struct IssuedCertificate {
    pub certificate: String,
    pub key: String,
}

/// Error while reading the expiry of a certificate.
#[derive(Debug, thiserror::Error)]
pub enum ExpiryError {
    /// The text contains no PEM certificate.
    #[error("no PEM certificate found")]
    Pem,
    #[error("cannot parse the certificate: {0}")]
    Parse(String),
}

/// Returns the expiry time of the first certificate in a PEM file.
///
/// # Errors
/// Returns an error if the file contains no certificate or the certificate cannot be parsed.
pub fn expiry(pem: &[u8]) -> Result<Timestamp, ExpiryError> {
    let certificate = CertificateDer::from_pem_slice(pem).map_err(|_| ExpiryError::Pem)?;
    let after_epoch = not_after(&certificate).map_err(|error| ExpiryError::Parse(error.to_string()))?;
    Ok(Timestamp::from_millis(u64::try_from(after_epoch.as_millis()).unwrap_or(u64::MAX)))
}

/// Returns the end of a certificate's validity (RFC 5280, section 4.1), as the time since the Unix epoch.
fn not_after(certificate: &[u8]) -> der::Result<Duration> {
    let fields = |sequence: AnyRef<'_>| -> der::Result<Vec<u8>> {
        sequence.tag().assert_eq(Tag::Sequence)?;
        Ok(sequence.value().to_vec())
    };
    let certificate = fields(AnyRef::from_der(certificate)?)?;
    let signed = fields(SliceReader::new(&certificate)?.decode()?)?;
    let mut signed = SliceReader::new(&signed)?;
    // The version is optional. It is followed by the serial number, the algorithm and the issuer.
    if signed.decode::<AnyRef<'_>>()?.tag().is_context_specific() {
        signed.decode::<AnyRef<'_>>()?;
    }
    signed.decode::<AnyRef<'_>>()?;
    signed.decode::<AnyRef<'_>>()?;
    let validity = fields(signed.decode()?)?;
    let mut validity = SliceReader::new(&validity)?;
    validity.decode::<AnyRef<'_>>()?;
    let end: AnyRef<'_> = validity.decode()?;
    if end.tag() == Tag::UtcTime {
        return Ok(end.decode_as::<UtcTime>()?.to_unix_duration());
    }
    Ok(end.decode_as::<GeneralizedTime>()?.to_unix_duration())
}

/// Subject that a certificate is issued to.
#[derive(Clone, Copy, Debug)]
pub enum Holder<'a> {
    /// A server, with the host names and addresses that clients connect to.
    Server(&'a [String]),
    /// A user, by name.
    User(&'a str),
}

/// Creates an authority: a self-signed certificate and its key.
///
/// # Errors
/// Returns an error if the key cannot be generated or the clock is outside the supported range.
pub fn create_authority(now: Timestamp) -> Result<IssuedCertificate, CertificateError> {
    let key = KeyPair::generate()?;
    let certificate = with_validity(authority_params(), now)?.self_signed(&key)?;
    Ok(made(&certificate, &key))
}

/// Issues a certificate that is signed with the key of an authority.
///
/// # Errors
/// Returns an error if the authority's key or a host is invalid, if the new key cannot be generated, or if
/// the clock is outside the supported range.
pub fn issue(
    holder: Holder<'_>,
    authority_key: &str,
    now: Timestamp,
) -> Result<IssuedCertificate, CertificateError> {
    let issuer = Issuer::new(authority_params(), KeyPair::from_pem(authority_key)?);
    let key = KeyPair::generate()?;
    let certificate = with_validity(certificate_params(holder)?, now)?.signed_by(&key, &issuer)?;
    Ok(made(&certificate, &key))
}

fn made(certificate: &Certificate, key: &KeyPair) -> IssuedCertificate {
    IssuedCertificate { certificate: certificate.pem(), key: key.serialize_pem() }
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(AUTHORITY_NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn certificate_params(holder: Holder<'_>) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::default();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    match holder {
        Holder::Server(hosts) => {
            params.distinguished_name = distinguished_name("nats-server");
            params.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            params.subject_alt_names =
                hosts.iter().map(|host| subject_alt_name(host)).collect::<Result<_, _>>()?;
        }
        Holder::User(name) => {
            params.distinguished_name = distinguished_name(name);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        }
    }
    Ok(params)
}

/// Returns a host name or an address as a subject alternative name.
fn subject_alt_name(host: &str) -> Result<SanType, CertificateError> {
    let bad = || CertificateError::Host(host.chars().take(100).collect());
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let plain = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let is_name = host.len() <= 253 && host.strip_prefix("*.").unwrap_or(host).split('.').all(plain);
    if is_name { Ok(SanType::DnsName(host.try_into().map_err(|_| bad())?)) } else { Err(bad()) }
}

fn distinguished_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::OrganizationName, "Muster");
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn with_validity(
    mut params: CertificateParams,
    now: Timestamp,
) -> Result<CertificateParams, CertificateError> {
    let at = |seconds: u64| {
        let seconds = i64::try_from(seconds).map_err(|_| CertificateError::Clock(now))?;
        OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| CertificateError::Clock(now))
    };
    params.not_before = at(now.seconds().saturating_sub(BACKDATING.as_secs()))?;
    params.not_after = at(now.seconds() + VALIDITY.as_secs())?;
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_read_from_first_pem_certificate() {
        let now = Timestamp::from_millis(1_795_000_000_000);
        let made = create_authority(now).unwrap();
        assert_eq!(expiry(made.certificate.as_bytes()).unwrap(), now + VALIDITY);
        let with_key = [made.key.as_bytes(), made.certificate.as_bytes()].concat();
        assert_eq!(expiry(&with_key).unwrap(), now + VALIDITY, "the first certificate counts");
        assert!(matches!(expiry(made.key.as_bytes()), Err(ExpiryError::Pem)));
        assert!(matches!(expiry(b"hello"), Err(ExpiryError::Pem)));
    }
}
