import { expect, test } from 'vitest'
import { checkInboxOptions } from '../../../server/inbox/options.ts'

test.each([
  [{ url: 'mysql://db' }, 'inbox: unknown kind of URL: write sqlite:PATH or postgres://USER@HOST/DATABASE'],
  [{ url: 'sqlite:' }, 'inbox: unknown kind of URL: write sqlite:PATH or postgres://USER@HOST/DATABASE'],
  [{ url: 'sqlite:x.db', password: { file: 'p' } }, 'inbox: password and ca are for PostgreSQL only'],
  [{ url: 'sqlite:x.db', ca: 'c' }, 'inbox: password and ca are for PostgreSQL only'],
  [{ url: 'postgres://u:p@db/inbox' }, 'inbox: the URL has a password: put it into a file (--inbox.password.file)'],
])('%j is misuse', (options, message) => {
  expect(() => checkInboxOptions(options)).toThrow(new TypeError(message))
})
