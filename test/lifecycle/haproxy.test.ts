// @module-tag slow
/** The table's faults behind nginx, here behind the HAProxy of `deploy/haproxy`. */
import { long } from '../support/needs.ts'
import { rowOf, testRow } from './row.ts'

for (const name of long ? ['server-update', 'kill'] : ['server-update']) {
  const row = rowOf(name)
  testRow({ ...row, title: `${row.title} (HAProxy)`, proxy: 'haproxy' })
}
