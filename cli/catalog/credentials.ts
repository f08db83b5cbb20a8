/** Certificates, keys and tokens: files on this machine, without a running component. */
import { type Command, commandsOf } from '../command.ts'
import { flag, force, json, listFlag } from './flags.ts'

const out = flag('DIR', 'Where the files go.')
const days = { days: flag('N', 'Days of validity; default 397, but never beyond the expiry of its authority.') }
const keySet = { jwks: flag('FILE', 'The key set (JWKS) that servers read.') }
const alg = flag('ALG', 'EdDSA (default), ES256, RS256 or PS256.')
const host = { ...flag('NAME...', 'DNS names, wildcards and IP addresses of the server.'), list: true, variadic: true }
const ca = flag('DIR', 'Folder with ca.pem and ca-key.pem. Default: the same as --out.')

export const CREDENTIALS: readonly Command[] = [
  ...commandsOf(() => import('../commands/certs.ts'), {
    certsInit: {
      name: 'certs init',
      about: 'Creates an authority and a server certificate: ca.pem, ca-key.pem, server.pem, server-key.pem.',
      example: "sallyport certs init --out certs --host tunnels.example.com '*.tunnels.example.com'",
      flags: {
        out,
        host,
        ...days,
        ...force,
      },
    },
    certsServer: {
      name: 'certs server',
      about: 'Creates another server certificate with the authority of `certs init`: server.pem, server-key.pem.',
      example: "sallyport certs server --ca certs --out certs --host '*.tunnels.example.com' --force",
      flags: {
        out,
        host,
        ca,
        ...days,
        ...force,
      },
    },
    certsClient: {
      name: 'certs client',
      about: 'Creates a client certificate for one runtime: NAME.pem, NAME-key.pem.',
      example: 'sallyport certs client --out certs --runtime demo',
      flags: {
        out,
        runtime: flag('NAME', 'The only runtime that its holder may serve.'),
        ca,
        ...days,
        ...force,
      },
    },
    certsReplica: {
      name: 'certs replica',
      about: 'Creates the certificate that replicas identify themselves with: replica.pem, replica-key.pem.',
      example: 'sallyport certs replica --ca peers --out peers',
      flags: {
        out,
        ca,
        ...days,
        ...force,
      },
    },
    certsRenew: {
      name: 'certs renew',
      about: 'Renews a certificate and its key in place, for the same names and use.',
      example: 'sallyport certs renew certs/server.pem --before 30d',
      positionals: ['FILE'],
      flags: {
        ca: flag('DIR', 'Folder with ca.pem and ca-key.pem. Default: the folder of the certificate.'),
        key: flag('FILE', 'Its key. Default: NAME-key.pem beside NAME.pem.'),
        before: flag('TIME', 'Renews only what expires within this time, such as 30d.'),
        ...days,
      },
    },
    certsExport: {
      name: 'certs export',
      about: 'Puts a certificate, its key and its authority into a PKCS#12 file, for Java agents.',
      example: 'sallyport certs export --cert certs/demo.pem --p12 demo.p12 --password.file password',
      flags: {
        p12: flag('FILE', 'The file to write.'),
        'password.file': flag('FILE', 'File with the password of the PKCS#12 file.'),
        cert: flag('FILE', 'The certificate (PEM).'),
        key: flag('FILE', 'Its private key (PEM). Default: NAME-key.pem beside NAME.pem.'),
        ca: flag('FILE', 'Its authorities (PEM). Default: ca.pem beside the certificate, if there is one.'),
        ...force,
      },
    },
    certsShow: {
      name: 'certs show',
      about: 'Describes the certificates in a file.',
      example: 'sallyport certs show certs/server.pem',
      positionals: ['FILE'],
      flags: json,
    },
  }),
  ...commandsOf(() => import('../commands/keys.ts'), {
    keysCreate: {
      name: 'keys create',
      about:
        'Creates a key pair for tokens: private.jwk (secret) signs them, jwks.json (for the server) verifies them.',
      example: 'sallyport keys create --out keys',
      flags: {
        out,
        alg,
        ...force,
      },
    },
    keysAdd: {
      name: 'keys add',
      about: 'Creates another key and adds its public half to a key set.',
      example: 'sallyport keys add --jwks keys/jwks.json --out keys/next.jwk',
      flags: {
        ...keySet,
        out: flag('FILE', 'Where to write the new private key (0600).'),
        alg,
        ...force,
      },
    },
    keysList: {
      name: 'keys list',
      about: 'Shows the keys of a set.',
      example: 'sallyport keys list --jwks keys/jwks.json',
      flags: { ...keySet, ...json },
    },
    keysRetire: {
      name: 'keys retire',
      about:
        'Removes a key from a set. Tokens that it signed are refused from now on; live sessions last until their tokens expire.',
      example: 'sallyport keys retire --jwks keys/jwks.json --kid ID',
      flags: { ...keySet, kid: flag('ID', 'Id of the key, or a prefix of it.') },
    },
  }),
  ...commandsOf(() => import('../commands/token.ts'), {
    tokenCreate: {
      name: 'token create',
      about: 'Signs a token for one runtime and prints it, and nothing else, on stdout.',
      example: 'sallyport token create --key keys/private.jwk --runtime demo --ttl 1h --out token',
      flags: {
        key: flag('FILE', 'private.jwk of `keys create`.'),
        runtime: flag('NAME', 'The runtime that the token names.'),
        ttl: flag('TIME', 'How long it is valid: 90s, 30m, 1h (default), 90d.'),
        audience: flag('AUDIENCE', 'Claim `aud`; default sallyport.'),
        issuer: flag('ISSUER', 'Claim `iss`; default none.'),
        cert: flag('FILE', 'Binds the token to this client certificate.'),
        host: listFlag('NAME', 'A host that the runtime may claim as its own, such as hooks.customer.com; may repeat.'),
        out: flag('FILE', 'Writes the token to this file (0600, atomically, replacing it) instead of stdout.'),
      },
    },
    tokenInspect: {
      name: 'token inspect',
      about: 'Shows the contents of a token, without checking its signature.',
      example: 'sallyport token inspect token',
      positionals: ['[FILE]'],
      flags: json,
    },
  }),
]
