import { testRows } from './row.ts'
import { short } from '../support/needs.ts'

testRows('server-update')
if (!short) testRows('server-restart', 'server-restart-kept', 'kill')
