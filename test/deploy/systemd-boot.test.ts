// @module-tag slow
/** K1: `deploy/systemd`, by its README, on two machines booted with systemd. */
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Booted, boot, carry, connectMachines } from '../support/booted.ts'
import { needs } from '../support/needs.ts'

const README = readFileSync('deploy/systemd/README.md', 'utf8')
const CALL =
  'curl --max-time 90 --silent --show-error --cacert /etc/sallyport/certs/ca.pem https://demo.tunnels.example.com/small'

/** The commands below a sentence. */
function after(sentence: string): string {
  const [, block] = README.split(`${sentence}\n\n`)
  return block!.split('\n\n')[0]!.replaceAll(/^ {4}/gm, '')
}

describe.runIf(needs('boot', 'curl'))('on two machines', () => {
  let server: Booted
  let client: Booted

  beforeAll(async () => {
    server = await boot('server')
    client = await boot('client')
    await connectMachines(server, client, ['10.99.0.1', '10.99.0.2'])
    await client.sh('echo 10.99.0.1 connect.tunnels.example.com demo.tunnels.example.com >> /etc/hosts')
    const user = README.match(/^ {4}(getent|id -u) .*$/gm)!.join('\n')
    // The user may exist, for example with the group that Debian's `adduser --system` gives it.
    await client.sh('useradd --system --no-create-home --gid nogroup sallyport')
    await Promise.all([server, client].map(machine => machine.sh(user)))
    await server.sh(after("On the server's machine:"))
    // However busy this machine is, callers wait during a restart.
    await server.sh("echo 'hold: { time: 60s, startup: 60s }' >> /etc/sallyport/server.yaml")
    await server.sh('systemctl restart sallyport-server')
    const folders = /^ {4}ssh \S+ (.*)$/m.exec(README)![1]!
    await client.sh(`umask 077; ${folders}`)
    carry(server, client, '/etc/sallyport/certs/ca.pem', 0o644)
    carry(server, client, '/etc/sallyport/keys/private.jwk', 0o600)
    await client.sh(after("On the client's machine:"))
    await client.sh('systemd-run --unit=app sallyport load-test --serve 127.0.0.1:3000')
    await client.comes(`${CALL} --fail`)
  })
  afterAll(() => Promise.all([server?.stop(), client?.stop()]))

  test("the README's checks say that all is well", async () => {
    expect(await client.sh(`sallyport check client --config /etc/sallyport/client.yaml`)).not.toContain('fail ')
    expect(await client.sh('sallyport status')).toContain('runtime demo')
    expect(await server.sh('sallyport status')).toContain('1 runtime, 2 sessions')
  })

  test("the service can read no key but its certificate's", async () => {
    const readable = 'cd / && setpriv --reuid sallyport --regid sallyport --clear-groups'
    const find = `${readable} find /etc/sallyport -name '*.jwk' -readable -o -name '*-key.pem' -readable`
    expect(await server.sh(find)).toBe('/etc/sallyport/certs/server-key.pem\n')
    expect(await client.sh(find)).toBe('')
  })

  test('K1 restarts of both lose nothing', async () => {
    const load = client.sh(`for i in $(seq 50); do ${CALL} --output /dev/null --write-out '%{http_code}\n'; done`)
    await server.sh('systemctl restart sallyport-server')
    await client.sh('systemctl restart sallyport-client')
    expect(new Set((await load).trim().split('\n'))).toEqual(new Set(['200']))
  })

  test('another runtime has its own client, and a restart hides neither from `status`', async () => {
    await client.sh(`umask 077; ${after('copy the units and the configuration:')}\n${after('Then start it:')}`)
    const both = "sallyport status | grep -c 'runtime demo\\|runtime shop' | grep 2"
    await client.comes(both)
    await client.sh('systemctl restart sallyport-client-shop')
    await client.comes(both)
    await client.sh('systemctl disable --now sallyport-client-shop sallyport-token-shop.timer')
    expect(await client.sh('sallyport status')).toContain('runtime demo')
  })

  test('a second socket of the server stops with the first', async () => {
    const [, file, unit] = /```ini\n +# (\S+)\n([^`]+)```/.exec(README)!
    await server.sh(`echo '${unit}' > ${file}
      sed -Ei 's/^(Sockets|Requires)=.*/& sallyport-health.socket/' /etc/systemd/system/sallyport-server.service
      echo 'health.listen: 0.0.0.0:8086' >> /etc/sallyport/server.yaml
      systemctl daemon-reload && systemctl restart sallyport-server`)
    const probe = 'curl --max-time 60 --silent http://127.0.0.1:8086/livez'
    await server.sh(`systemctl restart sallyport-server & ${probe}; wait`)
    await server.sh(`systemctl stop sallyport-server.socket; ! ${probe}; ! systemctl is-active sallyport-server`)
    await server.sh(`systemctl start sallyport-server && ${probe}`)
    await client.comes(`${CALL} --fail`)
  })

  test('an inbox and its key are written where the README puts them', async () => {
    const secret = /(?:^ {4}.*inbox-mac.*\n)+/m.exec(readFileSync('docs/inbox-operations.md', 'utf8'))![0]
    await server.sh(secret.replace(/^ *sallyport server.*/m, ''))
    const settings = 'inbox: sqlite:/var/lib/sallyport/inbox.db\ninbox.mac.file: /etc/sallyport/inbox-mac'
    await server.sh(`echo '${settings}' >> /etc/sallyport/server.yaml`)
    await client.sh("echo 'inbox: { key: { file: /var/lib/sallyport/inbox-key.pem } }' >> /etc/sallyport/client.yaml")
    await server.sh('systemctl restart sallyport-server')
    await client.sh('systemctl restart sallyport-client')
    await client.comes(`${CALL} --fail`)
    const mode = (name: string) => `stat --format '%a %U' /var/lib/sallyport/${name} /var/lib/sallyport`
    expect(await server.sh(mode('inbox.db'))).toBe('600 sallyport\n700 sallyport\n')
    expect(await client.sh(mode('inbox-key.pem'))).toBe('600 sallyport\n700 sallyport\n')
  })
})
