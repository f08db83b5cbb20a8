/** A real nginx that copies (WebDAV), behind a table that guards a part of it: `Destination` is a second path. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { serveRouter } from '../../router/index.ts'
import { needs, program } from '../support/needs.ts'
import { freePort } from '../support/proxy-program.ts'
import { until } from '../support/until.ts'
import { rawCall } from './support.ts'

it.runIf(needs('nginx'))('R3: nothing is copied over what callers may not write', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-dav-'))
  for (const name of ['', 'pub', 'private', 'temp']) {
    await mkdir(join(folder, name), { recursive: true })
    await chmod(join(folder, name), 0o777)
  }
  for (const name of ['pub/a', 'private/a']) await writeFile(join(folder, name), name)
  const port = await freePort()
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(name => `${name}_temp_path ${folder}/temp;`)
  const http = `http { access_log off; ${paths.join(' ')} server { listen 127.0.0.1:${port}; root ${folder}; dav_methods COPY MOVE; } }`
  const file = join(folder, 'nginx.conf')
  await writeFile(file, `daemon off; master_process off; pid ${folder}/pid; error_log stderr crit; events {} ${http}`)
  const nginx = spawn(program('nginx'), ['-p', folder, '-e', 'stderr', '-c', file], { stdio: 'ignore' })
  const target = `http://127.0.0.1:${port}`
  const service = await serveRouter({
    port: 0,
    routes: {
      routes: [
        { name: 'all', match: {}, target },
        { name: 'private', match: { path: '/private' }, target, allow: { callers: [] } },
      ],
    },
  })
  const copy = async (method: string, to: number, destination: string) => {
    const head = `${method} /pub/a HTTP/1.1\r\nhost: a\r\nconnection: close\r\nDestination: ${destination}\r\n\r\n`
    return (await rawCall(to, head)).split(' ')[1]
  }
  const read = (name: string) => readFile(join(folder, name), 'utf8')
  try {
    await until(async () => (await rawCall(port, 'GET / HTTP/1.0\r\n\r\n')) !== '')
    for (const method of ['COPY', 'MOVE']) {
      for (const path of ['/private/a', 'http://a/private/a', '/%70rivate/a', '/pub/%2e%2e/private/a']) {
        expect(await copy(method, service.address.port, path), path).toBe('400')
      }
    }
    expect(await read('private/a')).toBe('private/a')
    // What it does if nobody is in front of it.
    expect(await copy('COPY', port, 'http://a/pub/b')).toBe('204')
    expect(await read('pub/b')).toBe('pub/a')
    expect(await copy('COPY', port, '/private/a')).toBe('204')
    expect(await read('private/a')).toBe('pub/a')
  } finally {
    nginx.kill()
    await once(nginx, 'exit')
    await service.close({ graceMs: 0 })
    await rm(folder, { recursive: true, force: true })
  }
})
